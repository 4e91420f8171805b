package limiter

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/body"
	"github.com/dianalimiter/diana/internal/lib/clock"
)

// writer sets the headers when the response header is written, so that they replace
// those of an upstream, and records the status.
type writer struct {
	caddyhttp.ResponseWriterWrapper
	headers headers
	outer   *writer // of an outer rate_limit handler, which sets the headers of both
	status  int     // 0: the header is not written yet
	client  client  // zero: it does not matter whether it leaves
	gone    bool    // whether it had left when the status was written
	denied  bool    // whether the response is the denial of an inner rate_limit handler

	written int64 // bytes of the body

	failure *failure // the denial by an inner rate_limit handler; nil: none
	before  *failure // of an ErrorRoute's writer: what the request got before its error; nil: it is another's

	measured *measured // nil: no zone settles by the response

	charging *openCharge // nil: nothing is charged after the response

	placed *request // is told of the first byte; nil: it has no place
}

// client tells whether the client of a request has left before the end of the response.
type client struct {
	ctx  context.Context // of the request
	body *body.Watched
}

// gone reports whether the client has left. A client whose body broke off has left, too: an HTTP/1 server does not
// notice that otherwise.
func (c *client) gone() bool { return c.ctx != nil && c.hungUp() }

func (c *client) hungUp() bool { return errors.Is(c.ctx.Err(), context.Canceled) || c.body.Failed() }

// newWriter returns a writer around w. wrapped says that w may be, or wrap, the writer of an outer handler.
func newWriter(w http.ResponseWriter, wrapped bool) *writer {
	rw := new(writer)
	if rw.ResponseWriter = w; wrapped {
		rw.outer = outerWriter(w)
	}
	return rw
}

// outerWriter returns the nearest *writer that w is or wraps; nil: none.
func outerWriter(w http.ResponseWriter) *writer {
	for {
		switch t := w.(type) {
		case *writer:
			return t
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil
		}
	}
}

// setHeaders sets the headers of a response with a status, 0: of an error, or passes them to the
// outer handler.
func (rw *writer) setHeaders(status int) {
	switch f := rw.failure; {
	case rw.outer != nil:
		rw.outer.headers.add(&rw.headers)
		if f != nil {
			rw.outer.failure = f
		}
		return
	case rw.before != nil:
		rw.mergeHeaders(status)
	case f != nil:
		rw.headers.addDenial(&f.denial.headers)
	}
	rw.headers.set(rw.Header())
}

// addDenial adds the headers of the denial by an inner handler.
func (rw *writer) addDenial(e *exceeded, f *failure) {
	if rw.before != nil {
		rw.headers.addDenial(&e.headers)
		return
	}
	rw.failure = f
}

// WriteHeader implements http.ResponseWriter. Informational responses do not set the
// headers, except 101, which is final.
func (rw *writer) WriteHeader(status int) {
	if rw.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		rw.setHeaders(status)
		if rw.placed != nil && !rw.denied {
			rw.placed.answered(clock.Now(), outcomeOfStatus(status))
		}
		rw.begin(status)
	}
	rw.ResponseWriter.WriteHeader(status)
}

// begin notes the beginning of a response.
func (rw *writer) begin(status int) {
	if rw.charging == nil {
		rw.status, rw.gone = status, rw.client.gone()
		return
	}
	rw.charging.mu.Lock()
	defer rw.charging.mu.Unlock()
	rw.status, rw.gone = status, rw.client.gone()
	if rw.measured != nil {
		rw.measured.begin(status, rw.Header())
	}
}

// note notes a piece of the body, of which n bytes were written.
func (rw *writer) note(piece []byte, n int64) {
	if rw.charging == nil {
		return
	}
	rw.charging.mu.Lock()
	defer rw.charging.mu.Unlock()
	rw.written += n
	if rw.measured != nil {
		rw.measured.write(piece)
	}
}

func (rw *writer) implicit() {
	if rw.status == 0 {
		rw.WriteHeader(http.StatusOK)
	}
}

// Write implements http.ResponseWriter.
func (rw *writer) Write(b []byte) (int, error) {
	rw.implicit()
	n, err := rw.ResponseWriter.Write(b)
	rw.note(b, int64(n))
	return n, err
}

// ReadFrom implements io.ReaderFrom.
func (rw *writer) ReadFrom(r io.Reader) (int64, error) {
	rw.implicit()
	if m := rw.measured; m != nil && (m.reads || m.ends != nil) {
		return copyThrough(rw, r)
	}
	n, err := rw.ResponseWriterWrapper.ReadFrom(r)
	rw.note(nil, n)
	return n, err
}

// FlushError lets http.ResponseController flush, which writes the header.
func (rw *writer) FlushError() error {
	rw.implicit()
	return http.NewResponseController(rw.ResponseWriter).Flush()
}

// left reports whether the client has left before it had the whole response. A client that has the whole response may
// close its connection while handlers still run.
func (rw *writer) left(method string) bool {
	switch {
	case rw.gone || !rw.client.gone():
		return rw.gone
	case method == http.MethodHead, method == http.MethodConnect: // without a body, or until the client leaves
		return rw.status == 0
	}
	switch rw.status {
	case 0:
		return true
	case http.StatusSwitchingProtocols, http.StatusNoContent, http.StatusNotModified:
		return false
	}
	return rw.Header().Get("Content-Length") != strconv.FormatInt(rw.written, 10)
}

// finish sets the headers of a response that is not written yet. The server, or an error route, which does not use this
// writer, will write the response. For error routes, if there are any, it returns the error
// with what the request got before it (failure).
func (rw *writer) finish(err error, errorRoutes bool) error {
	if rw.status != 0 {
		return err
	}
	rw.charging.lock()
	if rw.gone = rw.client.gone(); err == nil {
		rw.status = http.StatusOK
	}
	rw.charging.unlock()
	if err == nil {
		rw.setHeaders(rw.status)
		return nil
	}
	if errorRoutes {
		var f *failure
		f, err = failed(err)
		if d := rw.failure; d != nil {
			f.denial, f.status, f.openAI = d.denial, d.status, d.openAI
		}
		f.headers = rw.headers
	}
	rw.setHeaders(0)
	return err
}
