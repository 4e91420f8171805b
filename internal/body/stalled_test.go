package body

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener is a listener with one connection.
type pipeListener struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error { close(l.closed); return nil }
func (pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestStalled sends a body that stops, to servers with and without a timeout. It is read no
// longer than the server's timeout or ten seconds. One that is merely slow is read, and what
// follows it may take longer, also that of a large one.
func TestStalled(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct {
		timeout time.Duration
		pieces  []string // one a second, and then no more
		want    string
		took    time.Duration
		cut     bool
	}{
		"chunked":                      {0, []string{head + "Transfer-Encoding: chunked\r\n\r\n", "5\r\n{\"pho\r\n"}, "", 10 * time.Second, true},
		"length":                       {0, []string{head + "Content-Length: 50\r\n\r\n", `{"phone":"1"}`}, "", 10 * time.Second, true},
		"nothing":                      {0, []string{head + "Content-Length: 50\r\n\r\n"}, "", 10 * time.Second, true},
		"server's timeout":             {30 * time.Second, []string{head + "Content-Length: 50\r\n\r\n"}, "", 30 * time.Second, true},
		"slow":                         {0, []string{head + "Content-Length: 13\r\n\r\n", `{"pho`, `ne"`, `:`, `"1"`, `}`}, "1", 5 * time.Second, false},
		"large, then slow":             {0, []string{head + "Content-Length: 75000\r\n\r\n" + strings.Repeat("a", 70000)}, "", 0, false},
		"large and chunked, then slow": {0, []string{head + "Transfer-Encoding: chunked\r\n\r\n124f8\r\n" + strings.Repeat("a", 70000)}, "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				l := pipeListener{make(chan net.Conn, 1), make(chan struct{})}
				l.conn <- theirs
				type result struct {
					value string
					took  time.Duration
					err   error
				}
				done := make(chan result, 1)
				srv := &http.Server{ReadTimeout: c.timeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					begun := time.Now()
					ReadFields(w, r, Max, false)
					res := result{value: Field(r, "phone"), took: time.Since(begun)}
					if c.want == "" && !c.cut {
						time.Sleep(2 * timeout)
					}
					b, err := io.ReadAll(r.Body)
					if res.err = err; !c.cut && len(b) != 13 && len(b) != 75000 {
						t.Errorf("%d bytes are handed on", len(b))
					}
					done <- res
				})}
				go func() { _ = srv.Serve(l) }()
				go func() {
					for i, p := range c.pieces {
						if i > 0 {
							time.Sleep(time.Second)
						}
						_, _ = io.WriteString(ours, p)
					}
					if !c.cut && c.want == "" { // long after the time for reading the beginning
						time.Sleep(3 * timeout)
						_, _ = io.WriteString(ours, strings.Repeat("a", 5000)+"\r\n0\r\n\r\n")
					}
				}()
				go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(ours)) }()
				res := <-done
				if res.value != c.want || res.took != c.took {
					t.Errorf("%q after %v, want %q after %v", res.value, res.took, c.want, c.took)
				}
				var timedOut net.Error
				if c.cut != (errors.As(res.err, &timedOut) && timedOut.Timeout()) {
					t.Errorf("error %v", res.err)
				}
				_ = ours.Close()
				_ = srv.Close()
				time.Sleep(time.Second) // until the server has left a connection whose body was not read to its end
			})
		})
	}
}

// drip is a body of one byte each nine seconds.
type drip struct{}

func (drip) Read(p []byte) (int, error) {
	time.Sleep(9 * time.Second)
	p[0] = 'a'
	return 1, nil
}

// patient is a response whose reading deadline another handler puts off.
type patient struct{ http.ResponseWriter }

func (patient) SetReadDeadline(time.Time) error { return nil }

// TestDripEnds reads a body that never ends, behind a handler that sets the deadline of each reading.
func TestDripEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", drip{})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, whole := Read(patient{}, r, 1000, false).Bytes(); whole || time.Since(begun) != 18*time.Second {
			t.Errorf("read after %v, whole %v, want the reading given up after 18 s", time.Since(begun), whole)
		}
	})
}
