// Package body reads the bodies of requests up to a bound, hands them on unchanged, and
// finds fields in them.
package body

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"time"
)

// Max is the size of the largest body that is read by default, in bytes.
const Max = 64 << 10

// timeout is the longest that a body is read if the server has no read_body timeout: a
// client may never send the end.
const timeout = 10 * time.Second

// Body is a body whose beginning has been read. As the body of its request, it yields
// what the original one would.
type Body struct {
	data  []byte    // what has been read
	next  int       // index of the first byte that has not been handed on
	rest  io.Reader // yields what follows data
	whole bool      // whether data is the whole body, and not larger than wanted
	io.Closer

	fields fields
}

// Read reads the body of a request, unless it is larger than size, and replaces it by one
// that yields the same. With begin, it reads the beginning of larger ones too. One that was read before is read further if size is larger now. It
// returns nil if there is no body. It waits for the end of the body no longer than the
// server's read_body timeout, or without one for ten seconds; w is used for this. After an
// error or that time the body yields what was read and the error.
func Read(w http.ResponseWriter, r *http.Request, size int64, begin bool) *Body {
	b := Of(r)
	if b == nil {
		if r.Body == nil || r.Body == http.NoBody {
			return nil
		}
		b = &Body{rest: r.Body, Closer: r.Body}
		r.Body = b
	}
	if b.whole || b.next > 0 || r.ContentLength > size && !begin || int64(len(b.data)) > size {
		return b
	}
	end, clearDeadline := setDeadline(w, r)
	err := b.read(r.ContentLength, size, end)
	if err == nil || errors.Is(err, io.EOF) {
		clearDeadline()
	}
	switch {
	case errors.Is(err, io.EOF):
		b.whole = int64(len(b.data)) <= size
		b.rest = errorReader{io.EOF}
	case err != nil:
		b.rest = errorReader{err}
	}
	return b
}

// Of returns what Read returned for a request, which several handlers may watch since; nil if it
// was not called.
func Of(r *http.Request) *Body {
	of := r.Body
	for {
		switch b := of.(type) {
		case *Body:
			return b
		case *Watched:
			of = b.ReadCloser
		default:
			return nil
		}
	}
}

// read reads until the end, an error, a time or more than size bytes.
func (b *Body) read(length, size int64, end time.Time) error {
	if b.data == nil {
		// A client that announces a length need not send it.
		b.data = make([]byte, 0, max(512, min(length+1, 4096)))
	}
	for int64(len(b.data)) <= size {
		if !end.IsZero() && time.Now().After(end) {
			return os.ErrDeadlineExceeded // another handler may set the deadline of each reading
		}
		if len(b.data) == cap(b.data) {
			b.data = slices.Grow(b.data, len(b.data))
		}
		n, err := b.rest.Read(b.data[len(b.data):min(int64(cap(b.data)), size+1)])
		b.data = b.data[:len(b.data)+n]
		if err != nil {
			return err
		}
	}
	return nil
}

// setDeadline bounds the time of reading the body if the server does not. It returns the bound;
// zero: none; and a function that removes it.
func setDeadline(w http.ResponseWriter, r *http.Request) (end time.Time, remove func()) {
	if srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server); w == nil || ok && srv.ReadTimeout > 0 {
		return end, func() {}
	}
	c := http.NewResponseController(w)
	end = time.Now().Add(timeout)
	if c.SetReadDeadline(end) != nil {
		return time.Time{}, func() {}
	}
	return end, func() { _ = c.SetReadDeadline(time.Time{}) }
}

// Bytes returns the body; false if it is larger than wanted or could not be read.
func (b *Body) Bytes() ([]byte, bool) { return b.data, b.whole }

// Read implements io.Reader.
func (b *Body) Read(p []byte) (int, error) {
	if b.next < len(b.data) {
		n := copy(p, b.data[b.next:])
		b.next += n
		return n, nil
	}
	return b.rest.Read(p)
}

// errorReader yields an error.
type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.err }
