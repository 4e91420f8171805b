package limiter

import (
	"net/http"
	"strings"
)

// isGRPC reports whether a request is a call of gRPC. Its clients do not read bodies, and take
// the status 429 for UNAVAILABLE, which they may send again at once.
func isGRPC(r *http.Request) bool {
	if r.ProtoMajor < 2 {
		return false
	}
	format, ok := strings.CutPrefix(strings.ToLower(r.Header.Get(headerContentType)), "application/grpc")
	return ok && (format == "" || format[0] == '+' || format[0] == ';')
}

// respondGRPC writes a response that is only trailers, which gRPC puts into the header.
func (d *decision) respondGRPC(w http.ResponseWriter) {
	status, message := "8", "rate limit exceeded" // RESOURCE_EXHAUSTED
	if d.unavailable() {
		status, message = "14", errReduced.Error() // UNAVAILABLE
	}
	h := w.Header()
	h.Set(headerContentType, "application/grpc")
	h.Set("Grpc-Status", status)
	h.Set("Grpc-Message", message)
	w.WriteHeader(http.StatusOK)
}
