package settle

import (
	"net/http"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/usage/scan"
)

// told is what a request and the response to it tell.
type told struct {
	r      *http.Request
	header http.Header     // of the response, as it was written; nil: it was not, or nothing in it is needed
	values lastValues      // of the paths of terms; nil: the body did not tell them
	end    config.Response // how it ended
}

// passing is the body of a response as it passes.
type passing struct {
	method  string        // of the request, which what follows may change
	scanner *scan.Scanner // nil: no response yet, or one whose body tells nothing
	lacks   string        // why; empty: it may
}

// begin begins a response with a final status and these headers. It reports whether its body may tell
// anything.
func (p *passing) begin(status int, h http.Header, paths *scan.Paths, sink scan.Sink) bool {
	if p.lacks = p.lacking(status, h); p.lacks != "" {
		return false
	}
	p.scanner = scan.New(h.Get("Content-Type"), paths, sink)
	return true
}

// lacking returns why a response has no body that is a whole text; empty: it has one.
func (p *passing) lacking(status int, h http.Header) string {
	switch status {
	case http.StatusSwitchingProtocols, http.StatusNoContent, http.StatusPartialContent, http.StatusNotModified:
		return "its status has no whole body"
	}
	encoding := h.Get("Content-Encoding")
	switch {
	case p.method == http.MethodHead || p.method == http.MethodConnect:
		return "the method has no body"
	case encoding != "" && encoding != "identity":
		return "its body is encoded: Content-Encoding"
	}
	return ""
}

// Write implements [config.Measured]. A piece counts even if the client has left meanwhile: the response
// has told it.
func (p *passing) Write(piece []byte) {
	if p.scanner != nil {
		_, _ = p.scanner.Write(piece)
	}
}

// End implements [config.Measured].
func (p *passing) End(whole bool) (cut bool) {
	if p.scanner == nil {
		return !whole
	}
	if whole {
		p.scanner.End()
	}
	if p.scanner.Format() == scan.Unknown {
		p.lacks = "it is not JSON, JSON lines or events"
	}
	return !whole && !p.scanner.Ended()
}

// Ended implements [config.Measured].
func (p *passing) Ended() bool { return p.scanner != nil && p.scanner.Ended() }

// Lacks implements [config.Measured].
func (p *passing) Lacks() string { return p.lacks }
