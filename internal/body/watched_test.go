package body

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestWatched reads the body of a request while its client sends it. It has failed if the client
// leaves, and not if it is closed while it is read, as a transport of HTTP/2 does if the upstream
// answers early.
func TestWatched(t *testing.T) {
	for name, c := range map[string]struct{ http2, leaves bool }{
		"HTTP/1, left": {false, true}, "HTTP/2, left": {true, true}, "HTTP/2, closed": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			reading, failed := make(chan struct{}), make(chan bool, 1)
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				w := Watch(r)
				if _, err := io.ReadFull(r.Body, make([]byte, 1)); err != nil || r.ProtoAtLeast(2, 0) != c.http2 {
					t.Errorf("%s: %v", r.Proto, err)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = r.Body.Read(make([]byte, 1))
				}()
				close(reading)
				if !c.leaves {
					time.Sleep(50 * time.Millisecond) // it reads by now, mostly
					_ = r.Body.Close()
				}
				<-done
				failed <- w.Failed()
			}))
			srv.EnableHTTP2 = c.http2
			srv.StartTLS()
			defer srv.Close()
			sent, send := io.Pipe()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, sent)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if resp, err := srv.Client().Do(r); err == nil {
					_ = resp.Body.Close()
				}
			}()
			if _, err := send.Write([]byte("a")); err != nil {
				t.Fatal(err)
			}
			if <-reading; c.leaves {
				_ = send.CloseWithError(io.ErrClosedPipe)
			}
			if got := <-failed; got != c.leaves {
				t.Errorf("failed: %v, want %v", got, c.leaves)
			}
		})
	}
}
