package body

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// Watched is a body that notes whether it could be read as far as it was wanted.
type Watched struct {
	io.ReadCloser
	closed, failed atomic.Bool

	passed *passed // nil: it is not counted
}

// Watch replaces the body of a request by a watched one, which is also counted if counts is set. It
// returns nil if there is none.
func Watch(r *http.Request, counts bool) *Watched {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	w := &Watched{ReadCloser: r.Body}
	if counts {
		w.passed = new(passed)
	}
	r.Body = w
	return w
}

// Read implements io.Reader.
func (w *Watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if w.passed != nil && n > 0 {
		w.passed.Lock()
		w.passed.size.add(p[:n])
		w.passed.Unlock()
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) && !isTooLarge(err) && !w.closed.Load() {
		w.failed.Store(true)
	}
	return n, err
}

// isTooLarge reports whether the body is larger than the server reads: the client has not left, and is
// told so.
func isTooLarge(err error) bool {
	_, is := errors.AsType[*http.MaxBytesError](err)
	return is
}

// Close implements io.Closer. What is still read then fails: a transport closes the body while it
// reads it, if the upstream has answered already.
func (w *Watched) Close() error {
	w.closed.Store(true)
	return w.ReadCloser.Close()
}

// Failed reports whether the client did not send what was read.
func (w *Watched) Failed() bool { return w != nil && w.failed.Load() }
