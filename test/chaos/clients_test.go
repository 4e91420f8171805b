package chaos

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// waiting is a site whose clients wait and whose request bodies are compared.
const waiting = `	rate_limit /queue {
		zone queue {
			key one
			rule 1000/1h leaky_bucket burst 500
			max_wait 1h
		}
	}
	rate_limit /patient {
		zone patient {
			key one
			rule 1/25s
			max_wait 30s
		}
	}
	rate_limit /body {
		zone body {
			key {query.k}
			rule 100000/1h
			prevent_duplicates 1h body
		}
	}
	respond ok`

// vanishing disconnects clients while they wait, while they send their bodies, and by
// resetting HTTP/2 streams.
func vanishing(t *testing.T, out *result) {
	srv := redistest.Start(t)
	c := harness.StartCaddy(t, harness.Config{Global: "\tservers {\n\t\tprotocols h1 h2c\n\t}\n" + global(srv.Addr), Site: waiting})
	harness.Until(t, harness.Patience, "a call to Redis", func() bool {
		up, _ := c.Metric(t, "caddy_rate_limit_store_up")
		return up == 1
	})
	goroutines := c.Goroutines(t)

	const queued = 100
	vanish(t, queued, 300*time.Millisecond, c.URL+"/queue", false)
	vanish(t, queued, 300*time.Millisecond, c.URL+"/queue", true)
	left := harness.Do(t, http.MethodGet, c.Admin+"/rate_limit/zones/queue/key?part=one", "")
	out.report("%d canceled while waiting", 2*queued)
	if used := 500 - remaining(t, left.Body); used < 2*queued-3 || used > 2*queued+1 {
		t.Errorf("%d of 500 charged after %d canceled requests: %s", used, 2*queued, left.Body)
	}

	slowBodies(t, c, 100)
	bounded(t, c, out)
	harness.Until(t, harness.Patience, "nothing leaks", func() bool {
		return c.Goroutines(t) <= goroutines+20
	})
	out.report("%d goroutines before, %d after", goroutines, c.Goroutines(t))
}

// remaining returns what remains of a key's only rule, from the admin endpoint's
// response.
func remaining(t *testing.T, text string) int {
	t.Helper()
	match := regexp.MustCompile(`"remaining": ?(\d+)`).FindStringSubmatch(text)
	if match == nil {
		t.Fatalf("no remaining in %s", text)
	}
	n, _ := strconv.Atoi(match[1])
	return n
}

// vanish sends n requests and cancels each after a while.
func vanish(t *testing.T, n int, after time.Duration, url string, h2 bool) {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(h2)
	transport.Protocols.SetHTTP1(!h2)
	defer transport.CloseIdleConnections()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), after)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
			if resp, err := transport.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
}

// slowBodies runs clients that send part of a body, wait, and disconnect.
func slowBodies(t *testing.T, c *harness.Caddy, n int) {
	t.Helper()
	var conns []net.Conn
	for i := range n {
		conn, err := net.Dial("tcp", strings.TrimPrefix(c.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /body?k=%d HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nbeginning", i)
		conns = append(conns, conn)
	}
	time.Sleep(300 * time.Millisecond)
	for _, conn := range conns {
		conn.Close()
	}
}

// bounded sends more requests than may wait in a zone: the excess is denied
// immediately.
func bounded(t *testing.T, c *harness.Caddy, out *result) {
	t.Helper()
	const clients, maxWaiting = 1300, 1000
	c.Get(t, "/patient")
	var denied atomic.Int64
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/patient", http.NoBody)
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests {
				denied.Add(1)
			}
		})
	}
	wg.Wait()
	out.report("%d of %d may wait", clients-denied.Load(), clients)
	if n := denied.Load(); n < clients-maxWaiting {
		t.Errorf("%d of %d denied immediately, want at least %d", n, clients, clients-maxWaiting)
	}
}
