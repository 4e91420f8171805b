package chaos

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// outageTime returns the duration of the long outage: DIANA_OUTAGE if set, such as 10m.
func outageTime() time.Duration {
	d, err := time.ParseDuration(cmp.Or(os.Getenv("DIANA_OUTAGE"), "40s"))
	if err != nil || d <= permitLapse {
		panic("DIANA_OUTAGE: want a duration above 30s, such as 10m")
	}
	return d
}

// heldRequests returns the number of requests that are held through the long outage:
// DIANA_HELD if set, such as 10000.
func heldRequests() int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("DIANA_HELD"), "1000"))
	if err != nil || n < 100 {
		panic("DIANA_HELD: want a number of at least 100, such as 10000")
	}
	return n
}

const (
	oneKey      = "/one key" // with half of the requests; the others have keys of their own
	sampledKeys = 50
)

// crowd is many requests that are held, each with a permit.
type crowd struct {
	*holders
	srv   *redistest.Server
	redis *redis.Client
	half  int
	begun time.Time
}

// longOutage stops Redis for long while many requests are in flight, and prints what
// is held before, during and after.
func longOutage(t *testing.T, out *result) {
	c := crowded(t)
	lasts := outageTime()
	c.sample("before", true)
	c.srv.Stall()
	stalled := time.Now()
	waitStores(t, c.caddys, false)
	c.sample("alone", false)
	for i := range 6 {
		time.Sleep(time.Until(stalled.Add(lasts * time.Duration(i+1) / 6)))
		c.sample("alone", false)
	}
	c.srv.Resume()
	waitStores(t, c.caddys, true)
	back := time.Now()
	c.sample("back", true)
	for c.full() <= sampledKeys && time.Since(back) < wholeAgain {
		time.Sleep(50 * time.Millisecond)
	}
	if n := c.full(); n > sampledKeys {
		out.report("in Redis again after %.1f s", time.Since(back).Seconds())
	} else {
		t.Errorf("the permits of %d of %d keys are in Redis %v after the outage", n, sampledKeys+1, wholeAgain)
	}
	c.sample("later", true)
	c.bounds(out)
	c.leave(out)
}

// crowded starts the instances and opens the requests.
func crowded(t *testing.T) *crowd {
	t.Helper()
	srv := redistest.Start(t)
	half := heldRequests() / 2
	site := ""
	for zone, limit := range map[string]int{"one": half, "each": 1} {
		site += fmt.Sprintf("\trate_limit /%[1]s {\n\t\tzone %[1]s {\n\t\t\tkey {query.k}\n\t\t\tin_flight %[2]d\n\t\t}\n\t}\n", zone, limit)
	}
	c := &crowd{holders: hold(t, instances, fmt.Sprintf("%s {\n\t\t\ttimeout %v\n\t\t}", srv.Addr, patient), site), srv: srv, redis: srv.Client(), half: half, begun: time.Now()}
	fmt.Printf("\n| %d requests of one key, %d of one key each\t|\n", half, half)
	fmt.Println("|    time | state    | one key | a key each | most of a key | by instance        | full in Redis | keys in Redis | Caddy MB    |")
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for j := w; j < half; j += 64 {
				if !c.open(j%instances, oneKey) || !c.open(j%instances, ownKey(j)) {
					t.Errorf("request %d of %d was denied", j, half)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return c
}

func ownKey(j int) string { return fmt.Sprintf("/each k%d", j) }

// sampled returns the keys with one request each that are tried and asked for.
func (c *crowd) sampled() (keys []string) {
	for i := range sampledKeys {
		keys = append(keys, ownKey(i*c.half/sampledKeys))
	}
	return keys
}

// sample tries to open further requests through every instance, and prints what is
// held: of the key with half of the requests, until they are denied.
func (c *crowd) sample(state string, shared bool) {
	c.t.Helper()
	var wg sync.WaitGroup
	for i := range c.caddys {
		for _, key := range c.sampled() {
			c.open(i, key)
		}
		for range 8 {
			wg.Go(func() {
				for c.up.holding(oneKey) <= 2*c.half && c.open(i, oneKey) {
				}
			})
		}
	}
	wg.Wait()
	c.print(state, shared)
}

func (c *crowd) print(state string, shared bool) {
	c.t.Helper()
	full, keys := "-", "-"
	if shared {
		full = fmt.Sprintf("%d of %d", c.full(), sampledKeys+1)
		keys = fmt.Sprint(c.keys())
	}
	by := c.up.byInstance()
	one := c.up.holding(oneKey)
	var memory []string
	for _, caddy := range c.caddys {
		b, _ := caddy.Metric(c.t, "process_resident_memory_bytes")
		memory = append(memory, fmt.Sprintf("%.0f", b/1e6))
	}
	fmt.Printf("| %5.0f s | %-8s | %7d | %10d | %13d | %-18s | %13s | %13s | %-11s |\n", time.Since(c.begun).Seconds(), state,
		one, by[0]+by[1]+by[2]-one, c.up.mostOf("/each"), fmt.Sprint(by), full, keys, strings.Join(memory, " "))
}

// full returns how many of the sampled keys, and of the key with half of the requests,
// have no permit left in Redis.
func (c *crowd) full() (n int) {
	c.t.Helper()
	for i, key := range append(c.sampled(), oneKey) {
		zone, k, _ := strings.Cut(strings.TrimPrefix(key, "/"), " ")
		a := harness.Do(c.t, http.MethodGet, fmt.Sprintf("%s/rate_limit/zones/%s/key?part=%s", c.caddys[i%instances].Admin, zone, k), "")
		if strings.Contains(a.Body, `"shared"`) && strings.Contains(a.Body, `"rule": "in_flight"`) {
			n++
		}
	}
	return n
}

// keys returns the number of the zones' keys in Redis.
func (c *crowd) keys() (n int) {
	c.t.Helper()
	keys, err := c.redis.Keys(context.Background(), "diana:*").Result()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, k := range keys {
		if !strings.Contains(k, harness.Maintenance) {
			n++
		}
	}
	return n
}

// bounds checks how many requests of each key were held at most.
func (c *crowd) bounds(out *result) {
	c.t.Helper()
	one, each := c.up.mostOf("/one"), c.up.mostOf("/each")
	out.report("at most %d of one key, of %d, and %d of another, of 1", one, c.half, each)
	if one > 2*c.half {
		c.t.Errorf("%d requests of one key, want at most %d", one, 2*c.half)
	}
	if each > 1+instances {
		c.t.Errorf("%d requests of a key of capacity 1, want at most one more for each instance", each)
	}
}

// leave ends all requests, and waits until no permit and no key is left behind.
func (c *crowd) leave(out *result) {
	c.t.Helper()
	c.up.answer(http.StatusOK)
	c.sent.Wait()
	ended := time.Now()
	harness.Until(c.t, time.Minute, "all permits are free", func() bool { return c.full() == 0 })
	free := time.Since(ended)
	c.print("free", true)
	harness.Until(c.t, time.Minute, "no key is left in Redis", func() bool { return c.keys() == 0 })
	c.print("ended", true)
	out.report("all free %.1f s after the last response, no key in Redis after %.0f s", free.Seconds(), time.Since(ended).Seconds())
	if free > wholeAgain {
		c.t.Errorf("permits left behind for %v, want at most %v", free, wholeAgain)
	}
	c.srv.CheckTTLs()
	c.check(out)
}
