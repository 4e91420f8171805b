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
}

// Watch replaces the body of a request by one that is watched. It returns nil if there is none.
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
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) && !w.closed.Load() {
		w.failed.Store(true)
	}
	return n, err
}

// Close implements io.Closer. What is still read then fails: a transport closes the body while it
// reads it, if the upstream has answered already.
func (w *Watched) Close() error {
	w.closed.Store(true)
	return w.ReadCloser.Close()
}

// Failed reports whether the client did not send what was read, or sent more than it may.
func (w *Watched) Failed() bool { return w != nil && w.failed.Load() }
