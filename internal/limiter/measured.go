package limiter

import (
	"io"
	"net/http"
	"sync"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/scan"
)

// measured is a response by which zones settle, as it passes.
type measured struct {
	method string
	reads  bool           // whether a zone looks for numbers in it
	zones  []measuredZone // by the index of [request.zones]
	ends   *scan.Scanner  // of the end of a stream, which frees places that linger; nil: that does not matter, or a zone looks
}

type measuredZone struct {
	settle   *config.Settle // nil: the zone does not settle by the response
	group    string         // of the costs of the zone; empty: it has none
	scanner  *scan.Scanner  // nil: no response yet, or one whose body tells nothing
	response config.Response
}

// measure returns what the response is measured by; nil if no zone needs it. Zones that want it make
// the request ask for what they measure.
func (q *request) measure() *measured {
	var m *measured
	if q.l.lingers {
		m = &measured{method: q.r.Method, zones: make([]measuredZone, len(q.zones))}
	}
	for i := range q.zones {
		z := &q.zones[i]
		settle := z.zone.Config.Charge.Settle
		if z.rules == nil || !z.rules.Charged || !settle.Measures(q.r) {
			continue
		}
		if m == nil {
			m = &measured{method: q.r.Method, zones: make([]measuredZone, len(q.zones))}
		}
		m.zones[i].settle = settle
		if z.zone.groups != nil {
			m.zones[i].group = z.zone.Config.Charge.GroupBy.Of(q.r) // what follows may change the request
		}
		m.reads = m.reads || settle.Paths != nil
		if !z.shadow {
			settle.AskUsage(q.r)
		}
	}
	return m
}

// begin begins a response with a final status and these headers.
func (m *measured) begin(status int, h http.Header) {
	lacks := m.lacks(status, h)
	if !m.reads && lacks == "" {
		m.ends = scan.New(h.Get(headerContentType), onlyEnds, noSink{})
	}
	for i := range m.zones {
		z := &m.zones[i]
		if z.settle == nil {
			continue
		}
		if z.settle.Headers {
			z.response.Header = h.Clone()
		}
		if z.settle.Paths == nil {
			continue
		}
		if z.response.Lacks = lacks; lacks != "" {
			continue
		}
		z.scanner = scan.New(h.Get(headerContentType), z.settle.Paths, z.settle.Read(&z.response))
	}
}

// onlyEnds finds nothing but the ends of streams.
var onlyEnds, _ = scan.NewPaths()

type noSink struct{}

func (noSink) Found(int, scan.Value) {}
func (noSink) EndText(bool)          {}

// lacks returns why a response has no body that is a whole text; empty: it has one.
func (m *measured) lacks(status int, h http.Header) string {
	switch status {
	case http.StatusSwitchingProtocols, http.StatusNoContent, http.StatusPartialContent, http.StatusNotModified:
		return "its status has no whole body"
	}
	encoding := h.Get("Content-Encoding")
	switch {
	case m.method == http.MethodHead || m.method == http.MethodConnect:
		return "the method has no body"
	case encoding != "" && encoding != "identity":
		return "its body is encoded: Content-Encoding"
	}
	return ""
}

// write reads a piece of the body. It counts even if the client has left meanwhile: the response
// has told it.
func (m *measured) write(piece []byte) {
	if m.ends != nil {
		_, _ = m.ends.Write(piece)
	}
	for i := range m.zones {
		if s := m.zones[i].scanner; s != nil {
			_, _ = s.Write(piece)
		}
	}
}

// end ends the body. whole is whether nothing was missing of it.
func (m *measured) end(whole bool) {
	if m == nil {
		return
	}
	for i := range m.zones {
		z := &m.zones[i]
		if z.response.Cut = !whole; z.scanner == nil {
			continue
		}
		if whole {
			z.scanner.End()
		}
		// Clients leave when a stream says that nothing follows, before it ends.
		z.response.Cut, z.response.Streams = !whole && !z.scanner.Ended(), z.scanner.Streams()
		if z.scanner.Format() == scan.Unknown {
			z.response.Lacks = "it is not JSON, JSON lines or events"
		}
	}
}

// ended reports whether a stream said that nothing follows.
func (m *measured) ended() bool {
	if m == nil {
		return false
	}
	ended := m.ends != nil && m.ends.Ended()
	for i := range m.zones {
		s := m.zones[i].scanner
		ended = ended || s != nil && s.Ended()
	}
	return ended
}

const headerAcceptEncoding = "Accept-Encoding"

// unencoded asks for a response that is not encoded, and returns what puts the header back.
// Without the header, Go's transport would ask for gzip itself.
func unencoded(h http.Header) (restore func()) {
	asked, has := h[headerAcceptEncoding]
	h[headerAcceptEncoding] = []string{"identity"}
	return func() {
		if h[headerAcceptEncoding] = asked; !has {
			delete(h, headerAcceptEncoding)
		}
	}
}

var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// copyThrough copies to w by its Write.
func copyThrough(w io.Writer, r io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, buf[:])
}
