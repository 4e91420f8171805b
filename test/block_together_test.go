package test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestBlockBesideQueue exceeds a rule with a block while a request of the key waits. The block
// starts, though a request behind others is only looked at.
func TestBlockBesideQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone queue {
					match path /slow
					in_flight 1
					max_wait 30s
				}
				zone z {
					rule 2/1h gcra block 1d
				}
			}
			` + handle(t, "*", g.ServeHTTP)})
		slow := req{path: "/slow"}
		inside := s.open(g, slow)
		before, waited, other := waiting(), make(chan int, 1), make(chan int, 1)
		go func() { a, _ := s.try(slow); waited <- a.status }()
		until(t, "a request waits", func() bool { return waiting() == before+1 })
		go func() { a, _ := s.try(req{path: "/fast"}); other <- a.status }() // takes what is left
		until(t, "the limit is used up", func() bool {
			k := s.key("GET", "z", "127.0.0.1")
			return len(k.Rules) > 0 && !k.Rules[0].Admits
		})
		a := s.want(slow, 429)
		s.wantHeader(a, "Retry-After", "86400")
		if k := s.key("GET", "z", "127.0.0.1"); k.Blocked == 0 {
			t.Errorf("denied by a rule with a block, and not blocked: %+v", k)
		}
		close(g.goOn)
		<-inside
		<-waited
		<-other
	})
}

// TestBlockBehindAnotherStore exceeds a zone in this process and one in Redis, which has a
// block. It starts although the other store denies first.
func TestBlockBehindAnotherStore(t *testing.T) {
	s := serve(t, setup{app: redisStore(redistest.Start(t).Addr, "timeout 10s"), site: `
		rate_limit {
			zone first {
				store local
				rule 2/1h gcra
			}
			zone z {
				rule 2/1h gcra block 1d
			}
		}
		respond ok`})
	s.want(req{}, 200, 200, 429, 429)
	if k := s.key("GET", "z", "127.0.0.1"); k.Blocked == 0 {
		t.Errorf("exceeded, and not blocked: %+v", k)
	}
}

// TestBlockWithoutAStore looks at keys of a zone with block while its store is unavailable: by on_failure nobody decides, or
// this instance alone, which starts no block.
func TestBlockWithoutAStore(t *testing.T) {
	for name, c := range map[string]struct {
		decision, rule, retry string
	}{
		"deny":  {"denied", "store", "1"},
		"allow": {"allowed", "", ""},
		"local": {"denied", "1", "60"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, setup{app: redisStore(unusedAddr(t), "on_failure "+name), site: "rate_limit {\nzone z {\nrule 1/1m block 1d\nprevent_duplicates 1h\n}\n}\nrespond ok"})
			s.send(req{})
			k := s.key("GET", "z", "127.0.0.1")
			if k.Decision != c.decision || k.Rule != c.rule || k.StartsBlock {
				t.Errorf("key: %+v", k)
			}
			var found cli.Found
			if status, text := s.admin("GET", "keys?part=127.0.0.1", "", &found); status != 200 {
				t.Errorf("keys: %d %s", status, text)
			}
			for _, method := range []string{"GET", "POST"} {
				var e cli.Explanation
				s.admin("POST", "explain", fmt.Sprintf(`{"method": %q, "url": %q, "client_ip": "127.0.0.1"}`, method, s.url), &e)
				a := s.send(req{method: method})
				if retry := a.get("Retry-After"); e.Decision != c.decision || e.Rule != c.rule || (retry == "") != (e.RetryIn == nil) || e.RetryIn != nil && *e.RetryIn > 61 || (retry == "") != (c.retry == "") {
					t.Errorf("%s: explained %+v, Retry-After %q", method, e, retry)
				}
			}
		})
	}
}

// TestInvalidListBehindADocument makes a list invalid while a document replaces the overrides.
// It does not come into force, and the next document is taken.
func TestInvalidListBehindADocument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "banned")
	writeList(t, file, "198.51.100.1")
	s := serveRuled(t, listSite(file))
	s.apply(zoneDocument(`{"overrides": []}`))
	writeList(t, file, "198.51.100.300")
	until(t, "the list is rejected", func() bool { return listStatus(s.site).Error != "" })
	s.apply(zoneDocument(`{}`))
	s.want(req{ip: "198.51.100.1"}, 429) // by the list before
}
