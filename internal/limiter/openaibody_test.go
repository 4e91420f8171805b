package limiter

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestErrorRouteWritesNothing has an error route write the status of a denial, and an empty text: the response has the
// status and the body of the denial.
func TestErrorRouteWritesNothing(t *testing.T) {
	w := httptest.NewRecorder()
	f := &failure{status: http.StatusTooManyRequests, body: []byte("denied")}
	err := f.serve(w, nil, handlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusTooManyRequests)
		_, err := w.Write(nil)
		return err
	}))
	if err != nil || w.Code != http.StatusTooManyRequests || w.Body.String() != "denied" {
		t.Errorf("error %v, status %d, body %q, want 429 and the denial's", err, w.Code, w.Body)
	}
}
