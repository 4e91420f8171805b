package test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// guesses is an upstream that is slow to refuse a guess: clients leave before it does, or
// before the end of the response.
type guesses struct {
	*httptest.Server
	entered chan bool // receives for each guess
	mu      sync.Mutex
	number  map[string]int // of guesses, by path
}

func newGuesses(t *testing.T) *guesses {
	g := &guesses{entered: make(chan bool, 100), number: make(map[string]int)}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.number[r.URL.Path]++
		g.mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/header") {
			w.WriteHeader(http.StatusUnauthorized)
			_ = http.NewResponseController(w).Flush()
		}
		g.entered <- true
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(g.Close)
	return g
}

// leave sends a guess, and leaves when the upstream has it. It returns the status if the guess
// is denied, otherwise 0.
func (g *guesses) leave(t *testing.T, c *http.Client, url string) (status int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, more := io.Pipe()
	defer func() { _ = more.Close() }()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20 // half of it is more than is buffered on the way, or read before a denial
	r.ContentLength = size
	go func() {
		if strings.HasSuffix(url, "/body") {
			_, _ = more.Write(make([]byte, size/2))
			return
		}
		_, _ = more.Write(make([]byte, size))
		_ = more.Close()
	}()
	ended := make(chan int, 1)
	header := make(chan bool, 1)
	go func() {
		resp, err := c.Do(r)
		if err != nil {
			ended <- 0
			return
		}
		header <- true
		if resp.StatusCode != http.StatusTooManyRequests {
			<-ctx.Done()
			resp.StatusCode = 0
		}
		_ = resp.Body.Close()
		ended <- resp.StatusCode
	}()
	select {
	case <-g.entered:
		if strings.HasSuffix(url, "/header") {
			<-header
		}
		cancel()
		_ = more.CloseWithError(context.Canceled)
		<-ended
		return 0
	case status := <-ended:
		return status
	}
}

// TestHangingUpIsCharged hangs up before the response, in the body of the request and after the
// header of the response, over three protocols, once the upstream has got a guess. Each is charged as if it had been refused, and then the client is blocked.
func TestHangingUpIsCharged(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g, port := newGuesses(t), redistest.FreePort(t)
		// There is no access log: Caddy reads the length of the request's body for it, beside
		// the transport of reverse_proxy, which may still read that body.
		serve(t, setup{app: b.app(), site: "respond ok", more: fmt.Sprintf(`https://localhost:%d {
			tls %s
			rate_limit {
				zone login {
					key {path}
					count_status 401 403
					rule 3/15m block 1h
				}
			}
			reverse_proxy %s
		}`, port, certificate(t), g.Listener.Addr())})
		insecure := &tls.Config{InsecureSkipVerify: true}
		one := &http.Transport{TLSClientConfig: insecure, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
		two := &http.Transport{TLSClientConfig: insecure, ForceAttemptHTTP2: true}
		three := &http3.Transport{TLSClientConfig: insecure}
		defer one.CloseIdleConnections()
		defer two.CloseIdleConnections()
		defer func() { _ = three.Close() }()
		for proto, rt := range []http.RoundTripper{one, two, three} {
			for _, way := range []string{"before", "body", "header"} {
				path := fmt.Sprintf("/%d/%s", proto+1, way)
				url, c, denied := "https://localhost:"+strconv.Itoa(port)+path, &http.Client{Transport: rt, Timeout: time.Minute}, 0
				for range 10 {
					if status := g.leave(t, c, url); status == http.StatusTooManyRequests {
						denied++
					}
					ended(t)
				}
				g.mu.Lock()
				n := g.number[path]
				g.mu.Unlock()
				if n != 3 || denied != 7 {
					t.Errorf("HTTP/%d, %s: %d of 10 guesses reached the upstream and %d were denied, want 3 and 7", proto+1, way, n, denied)
				}
				resp, err := c.Get(url)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if n, _ := strconv.Atoi(resp.Header.Get("Retry-After")); n < 3500 {
					t.Errorf("HTTP/%d, %s: status %d, Retry-After %d, want blocked for an hour", proto+1, way, resp.StatusCode, n)
				}
			}
		}
	})
}
