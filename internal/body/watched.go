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

	To io.Writer // gets what is read; nil: nobody wants it. It is set before the body is read
}

// Watch replaces the body of a request by a watched one. It returns nil if there is none.
func Watch(r *http.Request) *Watched {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	w := &Watched{ReadCloser: r.Body}
	r.Body = w
	return w
}

// Read implements io.Reader.
func (w *Watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if w.To != nil && n > 0 {
		_, _ = w.To.Write(p[:n])
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
