// Command overload runs Caddy with the Caddyfile beside it, an upstream for 200 requests a second at localhost:9000, and
// a load of twice as many. Start it from the root of the repository.
//
//	make example NAME=overload   twice the load, with the limit and without, until it is interrupted
//	bin/overload -measure        several loads, and a table; about six minutes
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/dianalimiter/diana"
)

const (
	workers = 40
	takes   = 200 * time.Millisecond // on average
	patient = 2 * time.Second        // how long clients wait
)

// upstream has so many workers. It goes on working on requests whose clients have left.
type upstream struct {
	mu    sync.Mutex
	free  *sync.Cond
	most  int
	works int
}

func newUpstream() *upstream {
	u := &upstream{most: workers}
	u.free = sync.NewCond(&u.mu)
	return u
}

func (u *upstream) set(n int) {
	u.mu.Lock()
	u.most = n
	u.mu.Unlock()
	u.free.Broadcast()
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	u.mu.Lock()
	for u.works >= u.most {
		u.free.Wait()
	}
	u.works++
	u.mu.Unlock()
	time.Sleep(time.Duration(rand.ExpFloat64() * float64(takes))) //nolint:gosec // a simulated service time
	u.mu.Lock()
	u.works--
	u.mu.Unlock()
	u.free.Signal()
	_, _ = io.WriteString(w, "ok\n")
}

// class is a kind of clients.
type class struct {
	name, tier string
	rate       float64 // requests a second
	keys       int

	offered, good, refused, failed atomic.Int64
	mu                             sync.Mutex
	latencies                      []time.Duration
}

var client = &http.Client{Timeout: patient, Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}

// run sends requests of the class at random moments until done is closed.
func (c *class) run(url string, done <-chan struct{}) {
	for next := time.Now(); ; {
		next = next.Add(time.Duration(rand.ExpFloat64() / c.rate * float64(time.Second))) //nolint:gosec // a load
		select {
		case <-done:
			return
		case <-time.After(time.Until(next)):
		}
		go c.send(url)
	}
}

func (c *class) send(url string) {
	r, err := http.NewRequest(http.MethodGet, url, nil) //nolint:gosec // our own address
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("X-Account", fmt.Sprint(c.name, rand.IntN(c.keys))) //nolint:gosec // a load
	r.Header.Set("X-Tier", c.tier)
	c.offered.Add(1)
	begun := time.Now()
	resp, err := client.Do(r) //nolint:gosec // our own address
	if err != nil {
		c.failed.Add(1)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		c.good.Add(1)
		c.mu.Lock()
		c.latencies = append(c.latencies, time.Since(begun))
		c.mu.Unlock()
	case http.StatusServiceUnavailable:
		c.refused.Add(1)
	default:
		c.failed.Add(1)
	}
}

// take returns what the class got since the last call.
func (c *class) take() (offered, good, refused, failed int64, p99 time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.latencies)
	if n := len(c.latencies); n > 0 {
		p99 = c.latencies[n*99/100]
	}
	c.latencies = nil
	return c.offered.Swap(0), c.good.Swap(0), c.refused.Swap(0), c.failed.Swap(0), p99
}

// warm is how long a load lasts before it is counted, for counted.
const warm, counted = 30 * time.Second, 30 * time.Second

// load runs classes.
func load(url string, classes ...*class) {
	done := make(chan struct{})
	for _, c := range classes {
		go c.run(url, done)
	}
	time.Sleep(warm)
	for _, c := range classes {
		c.take()
	}
	time.Sleep(counted)
	close(done)
}

func show(title string, counted time.Duration, classes ...*class) {
	fmt.Println(title)
	var all float64
	for _, c := range classes {
		offered, good, refused, failed, p99 := c.take()
		all += float64(good) / counted.Seconds()
		fmt.Printf("  %-6s %5.0f/s offered, %5.1f %% in time, %5.1f %% refused, %5.1f %% failed, p99 %v\n", c.name, float64(offered)/counted.Seconds(),
			percent(good, offered), percent(refused, offered), percent(failed, offered), p99.Round(time.Millisecond))
	}
	fmt.Printf("  goodput %.2f of the capacity\n", all/(workers/takes.Seconds()))
}

func percent(n, of int64) float64 { return 100 * float64(n) / float64(max(1, of)) }

func main() {
	measured := flag.Bool("measure", false, "measure several loads")
	flag.Parse()
	u := newUpstream()
	srv := &http.Server{Addr: "localhost:" + cmp.Or(os.Getenv("UPSTREAM"), "9000"), Handler: u, ReadHeaderTimeout: time.Minute}
	go func() { log.Fatal(srv.ListenAndServe()) }()
	with, without := "http://localhost:"+cmp.Or(os.Getenv("PORT"), "8080"), "http://localhost:"+cmp.Or(os.Getenv("WITHOUT"), "8081")
	go func() {
		for _, url := range []string{with, without} {
			for {
				if resp, err := http.Get(url); err == nil { //nolint:gosec,noctx // our own address
					_ = resp.Body.Close()
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		if *measured {
			measure(u, with, without)
			os.Exit(0)
		}
		demo(with, without)
	}()
	os.Args = []string{"caddy", "run", "--config", "examples/overload/Caddyfile"}
	caddycmd.Main()
}

// demo loads both sites, one after the other.
func demo(with, without string) {
	for {
		for _, s := range []struct{ name, url string }{{"with in_flight adaptive", with}, {"without", without}} {
			paid, free := &class{name: "paid", tier: "paid", rate: 120, keys: 20}, &class{name: "free", tier: "free", rate: 280, keys: 50}
			done := make(chan struct{})
			go paid.run(s.url, done)
			go free.run(s.url, done)
			for range 6 {
				time.Sleep(5 * time.Second)
				show(s.name, 5*time.Second, paid, free)
			}
			close(done)
			time.Sleep(10 * time.Second) // the upstream works on
		}
	}
}

func measure(u *upstream, with, without string) {
	all := func(rate float64) *class { return &class{name: "all", tier: "paid", rate: rate, keys: 20} }
	c := all(160)
	load(with, c)
	show("0.8 of the capacity", counted, c)
	c = all(400)
	load(with, c)
	show("twice", counted, c)
	c = all(1000)
	load(with, c)
	show("five times", counted, c)
	paid, free := &class{name: "paid", tier: "paid", rate: 120, keys: 20}, &class{name: "free", tier: "free", rate: 640, keys: 50}
	load(with, paid, free)
	show("the first class 0.6 of the capacity, all 3.8 times", counted, paid, free)
	heavy, light := &class{name: "heavy", tier: "paid", rate: 600, keys: 1}, &class{name: "light", tier: "paid", rate: 120, keys: 20}
	load(with, heavy, light)
	show("a heavy key beside twenty light ones", counted, heavy, light)
	c = all(160)
	u.set(workers / 2)
	load(with, c)
	show("0.8 of the capacity, halved", counted, c)
	u.set(workers)
	load(with, c)
	show("and returned", counted, c)
	c = all(400)
	load(without, c)
	show("twice, without a limit", counted, c)
}
