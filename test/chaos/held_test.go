package chaos

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// upstream is a server behind the instances that answers when it is told to. What it
// holds are the requests that a limiter has admitted and that still have their permits.
type upstream struct {
	addr string

	mu      sync.Mutex
	open    map[held]int
	most    map[string]int // by key, over all instances
	gate    *gate
	entered map[string]chan<- struct{} // by the request's number
}

// held says of which key a request is, and by which instance it was admitted.
type held struct {
	key      string // path and query parameter
	instance int
}

// gate holds requests until it is opened.
type gate struct {
	open   chan struct{}
	status int // of the responses
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func startUpstream(t *testing.T) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{
		addr: l.Addr().String(), gate: newGate(),
		open: make(map[held]int), most: make(map[string]int), entered: make(map[string]chan<- struct{}),
	}
	srv := &http.Server{Handler: u, Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1 << 16}}
	srv.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return u
}

// ServeHTTP implements http.Handler.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	i, _ := strconv.Atoi(q.Get("i"))
	h := held{r.URL.Path + " " + q.Get("k"), i}
	u.mu.Lock()
	g := u.gate
	u.open[h]++
	u.most[h.key] = max(u.most[h.key], u.count(h.key))
	if c, ok := u.entered[q.Get("id")]; ok {
		delete(u.entered, q.Get("id"))
		close(c)
	}
	u.mu.Unlock()
	select {
	case <-g.open:
	case <-r.Context().Done(): // the instance was killed
	}
	u.mu.Lock()
	u.open[h]--
	u.mu.Unlock()
	w.WriteHeader(cmp.Or(g.status, http.StatusOK))
}

// count returns how many requests of a key are held.
func (u *upstream) count(key string) (n int) {
	for i := range instances {
		n += u.open[held{key, i}]
	}
	return n
}

// holding returns how many requests of a key are held.
func (u *upstream) holding(key string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count(key)
}

// byInstance returns how many requests of all keys are held.
func (u *upstream) byInstance() (n [instances]int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for h, open := range u.open {
		n[h.instance] += open
	}
	return n
}

// peak returns how many requests of a key were held at most since the last call.
func (u *upstream) peak(key string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	most := u.most[key]
	u.most[key] = u.count(key)
	return most
}

// mostOf returns how many requests of a key with a prefix were held at most.
func (u *upstream) mostOf(prefix string) (most int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, n := range u.most {
		if strings.HasPrefix(key, prefix) {
			most = max(most, n)
		}
	}
	return most
}

// answer answers all requests that are held.
func (u *upstream) answer(status int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gate.status = status
	close(u.gate.open)
	u.gate = newGate()
}

// holders sends requests through the instances to an upstream that holds them.
type holders struct {
	t      *testing.T
	caddys []*harness.Caddy
	up     *upstream
	client *http.Client
	ids    atomic.Int64
	sent   sync.WaitGroup

	mu       sync.Mutex
	statuses map[int]int
	killed   [instances]bool // its requests may fail
}

// hold starts n instances, which share a store, in front of an upstream. HTTP/2 lets
// thousands of requests share few connections.
func hold(t *testing.T, n int, store, site string) *holders {
	t.Helper()
	h := &holders{t: t, up: startUpstream(t), statuses: make(map[int]int)}
	h.caddys = fleet(t, n, harness.Config{
		Global: "\tservers {\n\t\tprotocols h1 h2c\n\t}\n" + global(store),
		Site:   site + "\treverse_proxy h2c://" + h.up.addr,
	})
	waitStores(t, h.caddys, true)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	h.client = &http.Client{Transport: transport}
	t.Cleanup(func() { // before the instances end, for which they would wait
		h.up.answer(http.StatusOK)
		h.sent.Wait()
		transport.CloseIdleConnections()
	})
	return h
}

// open sends a request for a key, as "/path key", and reports whether it was admitted.
// It is then held until the upstream answers.
func (h *holders) open(instance int, key string) bool {
	id, entered, denied := fmt.Sprint(h.ids.Add(1)), make(chan struct{}), make(chan struct{})
	h.up.mu.Lock()
	h.up.entered[id] = entered
	h.up.mu.Unlock()
	h.sent.Go(func() {
		defer close(denied)
		status := h.get(instance, key, id)
		h.mu.Lock()
		defer h.mu.Unlock()
		if status != 0 || !h.killed[instance] {
			h.statuses[status]++
		}
	})
	select {
	case <-entered:
		return true
	case <-denied:
	}
	h.up.mu.Lock()
	defer h.up.mu.Unlock()
	_, waits := h.up.entered[id]
	delete(h.up.entered, id)
	return !waits
}

// get returns the status of the response, 0 without one.
func (h *holders) get(instance int, key, id string) int {
	var path, k string
	_, _ = fmt.Sscan(key, &path, &k)
	url := fmt.Sprintf("%s%s?k=%s&i=%d&id=%s", h.caddys[instance].URL, path, k, instance, id)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// check fails the test if a request was neither admitted nor denied.
func (h *holders) check(out *result) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for status, of := range h.statuses {
		n += of
		switch status {
		case http.StatusOK, http.StatusUnauthorized, http.StatusTooManyRequests:
		default:
			h.t.Errorf("%d responses with status %d (0: none)", of, status)
		}
	}
	out.report("%d requests", n)
}
