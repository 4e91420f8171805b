package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// prompt bounds a request that must not wait for code of others. It is short enough that
// a test which fails does so soon.
const prompt = 10 * time.Second

// soon sends a request that is answered while code of others blocks.
func (s *site) soon(q req, status int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), prompt)
	defer cancel()
	q.ctx = ctx
	if a, err := s.try(q); err != nil {
		s.Fatalf("the request waits: %v", err)
	} else if a.status != status {
		s.Fatalf("status %d, want %d", a.status, status)
	}
}

// TestSlowEventHandlerDelaysNoRequest denies requests while the handler of the event
// blocks. The events come later, in order and after their log lines.
func TestSlowEventHandlerDelaysNoRequest(t *testing.T) {
	seen, subscribe := listen(t, "rate_limit_exceeded")
	seen.hold = make(chan struct{})
	s := serve(t, setup{global: subscribe, site: "rate_limit {\nzone slow {\nkey {http.request.host}\nrule 1/1h\n}\n}\nrespond ok"})
	t.Cleanup(func() { closeOnce(seen.hold) }) // before Caddy stops
	const n = 20
	for i := range n {
		q := req{host: fmt.Sprintf("h%d.example", i)}
		s.soon(q, 200)
		s.soon(q, 429)
	}
	if lines := s.log.lines(t, "rate limit exceeded"); len(lines) != n {
		t.Errorf("%d log lines while the handler blocks, want %d", len(lines), n)
	}
	close(seen.hold)
	for i, e := range seen.wait(t, "rate_limit_exceeded", n) {
		if want := fmt.Sprintf("h%d.example", i); e.Data["host"] != want {
			t.Errorf("event %d is of %v, want %s", i, e.Data["host"], want)
		}
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// TestEventsAreBounded denies more requests than events are kept while the handler
// blocks, in many zones, which emit a hundred a second each: the others are counted in the log.
func TestEventsAreBounded(t *testing.T) {
	seen, subscribe := listen(t, "rate_limit_exceeded")
	seen.hold = make(chan struct{})
	const zones, each = 30, 100
	const n = zones * each
	config := ""
	for i := range zones {
		config += fmt.Sprintf("zone slow%d {\nmatch path /%d\nrule 1/1h\n}\n", i, i)
	}
	s := serve(t, setup{global: subscribe, site: "rate_limit {\n" + config + "}\nrespond ok"})
	t.Cleanup(func() { closeOnce(seen.hold) })
	for i := range zones {
		s.soon(req{path: fmt.Sprintf("/%d", i)}, 200)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*prompt)
	defer cancel()
	parallel(zones, func(i int) {
		for range each {
			if _, err := s.try(req{ctx: ctx, path: fmt.Sprintf("/%d", i)}); err != nil {
				t.Errorf("the request waits: %v", err)
				return
			}
		}
	})
	close(seen.hold)
	line := s.log.wait(t, "events were dropped, because their handlers take too long")
	dropped, _ := line["dropped"].(float64)
	if dropped < 1 || dropped >= n {
		t.Errorf("%v events were dropped, want some of %d", dropped, n)
	}
	if got := len(seen.wait(t, "rate_limit_exceeded", n-int(dropped))); got+int(dropped) != n {
		t.Errorf("%d events and %v dropped, want %d together", got, dropped, n)
	}
}

// TestLargeValuesOfEventsAreCut checks that an event does not keep what a client makes
// large.
func TestLargeValuesOfEventsAreCut(t *testing.T) {
	seen, subscribe := listen(t, "rate_limit_exceeded")
	s := serve(t, setup{global: subscribe, site: `
		rate_limit {
			zone large {
				key {header.A}
				rule 1/1h
			}
			log_key
		}
		respond ok`})
	q := req{header: map[string]string{"A": strings.Repeat("é", 10_000)}}
	s.want(q, 200, 429)
	if key, _ := seen.wait(t, "rate_limit_exceeded", 1)[0].Data["key"].(string); len(key) > 5000 || !strings.HasPrefix(key, "é") || strings.HasSuffix(key, "\xc3") {
		t.Errorf("the key in the event has %d bytes and ends in %q", len(key), key[max(0, len(key)-2):])
	}
}

// TestSlowStoreEventDelaysNothing stops and starts Redis while the handler of the first
// event blocks: requests are decided, Redis is used again, and the events come in order.
func TestSlowStoreEventDelaysNothing(t *testing.T) {
	srv := redistest.Start(t)
	seen, subscribe := listen(t, "rate_limit_store_down", "rate_limit_store_up")
	seen.hold = make(chan struct{})
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 2s", "dial_timeout 2s"), global: subscribe, site: fiveAnHour})
	t.Cleanup(func() { closeOnce(seen.hold) })
	s.soon(req{}, 200)
	for round := range 2 {
		srv.Kill()
		for i := range 6 {
			s.soon(req{ip: fmt.Sprintf("10.0.%d.%d", round, i)}, 200)
		}
		until(t, "the store to be down", func() bool { return s.metric("store_up", "store", "redis") == 0 })
		srv.Run()
		until(t, "the store to be up", func() bool { return s.metric("store_up", "store", "redis") == 1 })
		until(t, "the log line", func() bool { return len(s.log.lines(t, storeIsUp)) > round })
	}
	close(seen.hold)
	seen.wait(t, "rate_limit_store_up", 2)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	var order []string
	for _, e := range seen.seen {
		order = append(order, strings.TrimPrefix(e.Name(), "rate_limit_store_"))
	}
	if got := strings.Join(order, " "); got != "down up down up" {
		t.Errorf("events %s, want down up down up", got)
	}
}

// TestSlowStorageDelaysNothing blocks Caddy's storage: heartbeats go on, so that other
// instances count this one, and remote rules still change. What was to be stored is
// stored later, the last value of each.
func TestSlowStorageDelaysNothing(t *testing.T) {
	srv := redistest.Start(t)
	hold, name, path := make(chan struct{}), newName("storage"), filepath.Join(t.TempDir(), "rules.json")
	slowStorages.Store(name, hold)
	s := newSite(t)
	t.Cleanup(func() {
		closeOnce(hold)
		slowStorages.Delete(name)
	})
	adapted, err := adapt(t, setup{
		app:  redisStore(srv.Addr, "timeout 10s") + "\nrules file " + path,
		site: "rate_limit {\nzone z {\nkey {client_ip}\nrule 1/1h\n}\n}\nrespond ok",
	}.caddyfile(s))
	if err != nil {
		t.Fatal(err)
	}
	storage := fmt.Sprintf(`"storage":{"module":"file_system","root":%q}`, s.storage)
	slow := fmt.Sprintf(`"storage":{"module":"test_slow","root":%q,"hold":%q}`, s.storage, name)
	text := strings.Replace(string(adapted), storage, slow, 1)
	if text == string(adapted) {
		t.Fatalf("no %s in %s", storage, text)
	}
	if err := s.loadJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	r := &ruledSite{site: s, path: path}
	beats := func() int64 { // of this instance, in microseconds
		ms := srv.Client().PTTL(context.Background(), "diana:{instances}").Val().Milliseconds()
		return time.Now().UnixMilli() + ms
	}
	first := int64(0)
	until(t, "a heartbeat", func() bool {
		first = beats()
		return s.metric("store_up", "store", "redis") == 1 && first > time.Now().UnixMilli()
	})
	until(t, "more heartbeats, while the storage blocks", func() bool { return beats() > first+2500 })
	for limit := 2; limit <= 4; limit++ {
		r.apply(zoneDocument(fmt.Sprintf(`{"rules": [{"limit": %d, "window": "1h"}]}`, limit)))
	}
	s.soon(req{}, 200)
	close(hold)
	until(t, "the last rules to be stored", func() bool {
		files, _ := filepath.Glob(filepath.Join(s.storage, "rate_limit", "rules", "*.json"))
		if len(files) != 1 {
			return false
		}
		text, err := os.ReadFile(files[0])
		return err == nil && strings.Contains(string(text), `"limit": 4`)
	})
	until(t, "the number of instances to be stored", func() bool {
		text, err := os.ReadFile(s.instances(srv.Addr))
		return err == nil && string(text) == "1"
	})
}
