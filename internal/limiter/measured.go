package limiter

import (
	"io"
	"net/http"
	"sync"

	"github.com/dianalimiter/diana/config"
)

// measured is a response by which zones settle, as it passes.
type measured struct {
	method string
	reads  bool            // whether a zone reads its body
	zones  []measuredZone  // by the index of [request.zones]
	ends   config.Measured // looks for the end of a stream, which frees places that linger; nil: that does not matter, or a zone reads
}

type measuredZone struct {
	by    config.Measured // nil: the zone does not settle by the response
	group string          // of the costs of the zone; empty: it has none
	reads bool            // the body
	end   config.End      // of its body
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
		charge := &z.zone.Config.Charge
		if z.rules == nil || !z.rules.Charged || !charge.Measures(q.r) {
			continue
		}
		if m == nil {
			m = &measured{method: q.r.Method, zones: make([]measuredZone, len(q.zones))}
		}
		if z.zone.groups != nil {
			m.zones[i].group = charge.GroupBy.Of(q.r) // what follows may change the request
		}
		m.reads = m.reads || charge.Settle.ReadsResponse()
		m.zones[i].by = charge.Settle.Measure(q.r, i < q.enforced && q.mayGrow())
	}
	if q.l.lingers && !m.reads {
		m.ends = q.l.env.Responses.Ends(q.r)
	}
	return m
}

// begin begins a response with a final status and these headers.
func (m *measured) begin(status int, h http.Header) {
	if m.ends != nil && !m.ends.Begin(status, h) {
		m.ends = nil
	}
	for i := range m.zones {
		if z := &m.zones[i]; z.by != nil {
			z.reads = z.by.Begin(status, h)
		}
	}
}

// write reads a piece of the body.
func (m *measured) write(piece []byte) {
	if m.ends != nil {
		m.ends.Write(piece)
	}
	for i := range m.zones {
		if z := &m.zones[i]; z.reads {
			z.by.Write(piece)
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
		if z.by == nil {
			continue
		}
		if z.end = config.Whole; z.by.End(whole) {
			z.end = config.Cut
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
		by := m.zones[i].by
		ended = ended || by != nil && by.Ended()
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
