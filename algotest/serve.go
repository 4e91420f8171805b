package algotest

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // the modules of an ordinary Caddy

	_ "github.com/dianalimiter/diana" // the handler
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// worstWindow is storekit.WorstWindow for charges in any order.
func worstWindow(charges []storekit.Charge, window int64) int64 {
	slices.SortFunc(charges, func(a, b storekit.Charge) int { return int(a.At - b.At) })
	return storekit.WorstWindow(charges, window)
}

// Serve runs a rule, such as "3/2s my_algorithm", in a real Caddy over HTTP: in the local
// store, in Redis, and in the local store again after Redis is killed. Keys are the values
// of the header X-Id. requests has a line for each request, such as
//
//	GET / X-Id=a => 200*3 429 retry=2
//	GET / X-Id=a => until 200
//
// which is sent once for each status: here four times, with a Retry-After of at most 2 on
// the last response, and then until it is answered with 200.
func Serve(t *testing.T, rule, requests string) {
	server := redistest.Start(t)
	for _, store := range []string{"", "store redis localhost:6379"} {
		name := "local"
		if store != "" {
			name = "redis"
		}
		t.Run(name, func(t *testing.T) {
			url := load(t, rule, store, server.Addr)
			send(t, url, requests)
			if store == "" {
				return
			}
			server.CheckTTLs()
			server.Kill()
			send(t, url, "GET / X-Id=without-redis => until 200")
		})
	}
}

// load runs Caddy with a rule until the end of the test, and returns its URL.
func load(t *testing.T, rule, store, addr string) string {
	t.Helper()
	adapted, err := trace.Adapt(fmt.Sprintf(`
		{
			rate_limit {
				%s
			}
		}
		:8080 {
			rate_limit {
				zone tested {
					key {header.X-Id}
					rule %s
				}
			}
			respond hello
		}`, store, rule))
	if err != nil {
		t.Fatal(err)
	}
	moved, _, err := trace.Place{Storage: t.TempDir(), Redis: addr}.Move(adapted)
	if err != nil {
		t.Fatal(err)
	}
	urls, err := trace.Load(moved)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	return urls[0]
}

func send(t *testing.T, url, text string) {
	t.Helper()
	steps, err := trace.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: new(http.Transport), Timeout: time.Minute}
	defer client.CloseIdleConnections()
	if _, err := trace.Run(client, url, steps); err != nil {
		t.Error(err)
	}
}
