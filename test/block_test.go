package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/cli"
)

const dayOfBlock = 24 * 3600

// blockedFor fails the test unless the key is blocked for about that many seconds.
func (s *site) blockedFor(zone, key string, seconds float64) (k limiter.Key) {
	s.Helper()
	k = s.key("GET", zone, key)
	if k.Blocked < seconds-600 || k.Blocked > seconds {
		s.Errorf("blocked for %v seconds, want about %v: %+v", k.Blocked, seconds, k)
	}
	return k
}

// TestBlock blocks clients under each algorithm. The denial that starts the block and those
// that follow say when it ends, and other clients are not blocked.
func TestBlock(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for i, alg := range []string{"sliding_log", "fixed_window", "sliding_window", "gcra", "token_bucket", "leaky_bucket nodelay"} {
			s := serve(t, zoneOf(b, "rule 2/1m "+alg+" block 1d\nrule 1000/2m"))
			q := req{ip: fmt.Sprintf("10.0.1.%d", i)}
			s.want(q, 200, 200)
			for range 3 {
				a := s.want(q, 429)
				s.between(a, "Retry-After", dayOfBlock-600, dayOfBlock)
				if limit := a.header.Get("RateLimit"); !strings.Contains(limit, `"z";r=0;t=8`) || !strings.Contains(limit, `"z.2";r=0;t=8`) {
					t.Errorf("%s: RateLimit: %s", alg, limit)
				}
			}
			s.want(req{ip: fmt.Sprintf("10.0.2.%d", i)}, 200)
			if k := s.blockedFor("z", q.ip, dayOfBlock); k.Decision != "denied" || k.Rule != "1" || *k.RetryIn != k.Blocked {
				t.Errorf("%s: %+v", alg, k)
			}
		}
	})
}

// TestBlockSurvives changes the rules while a client is blocked: it remains so, unless no
// rule blocks any more.
func TestBlockSurvives(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "rule 2/1h gcra block 1d"))
		s.want(req{}, 200, 200, 429)
		for _, lines := range []string{"rule 100/1h gcra block 1d", "rule 50/1m\nrule 100/2h fixed_window block 1m", "rule 100/1h block 1s name other"} {
			s.reload(zoneOf(b, lines))
			s.between(s.want(req{}, 429), "Retry-After", dayOfBlock-600, dayOfBlock)
		}
		if k := s.blockedFor("z", "127.0.0.1", dayOfBlock); k.Rule != "other" {
			t.Errorf("denied by the rule %s, want the only one that blocks", k.Rule)
		}
		s.reload(zoneOf(b, "rule 100/1h"))
		s.want(req{}, 200)
	})
}

// TestBlockOfDocument blocks by a rule of a document.
func TestBlockOfDocument(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serveRuled(t, zoneOf(b, "rule 2/1h gcra"))
		s.want(req{}, 200, 200, 429)
		s.apply(zoneDocument(`{"rules": [{"limit": 2, "window": "1h", "algorithm": {"name": "gcra"}, "block": "1d"}]}`))
		s.between(s.want(req{}, 429), "Retry-After", dayOfBlock-600, dayOfBlock)
		s.apply(zoneDocument(`{"rules": [{"limit": 9, "window": "1h", "algorithm": {"name": "gcra"}, "block": "1d"}]}`))
		s.between(s.want(req{}, 429), "Retry-After", dayOfBlock-600, dayOfBlock)
		if msg := s.rejected(zoneDocument(`{"rules": [{"limit": 9, "window": "1h", "block": "-1s"}]}`)); !strings.Contains(msg, "/zones/z/rules/0") || !strings.Contains(msg, "block -1s: want at least 1us") {
			t.Errorf("block -1s in a document: %s", msg)
		}
		s.apply(zoneDocument(`{"rules": [{"limit": 9, "window": "1h", "algorithm": {"name": "gcra"}}]}`))
		s.want(req{}, 200)
	})
}

// TestBlockGrows blocks a client again soon after its block: the next one is longer, also after a
// reload and by a document, and a reset begins anew.
func TestBlockGrows(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serveRuled(t, zoneOf(b, "rule 1/100ms fixed_window block 200ms 1h 2h"))
		s.want(req{}, 200, 429)
		time.Sleep(300 * time.Millisecond)
		s.want(req{}, 200)
		if k := s.key("GET", "z", "127.0.0.1"); !k.StartsBlock || *k.RetryIn != 3600 {
			t.Errorf("before the second block: %+v, want one of an hour", k)
		}
		s.between(s.want(req{}, 429, 429), "Retry-After", 3000, 3600)
		s.blockedFor("z", "127.0.0.1", 3600)
		if r := s.zones().Zones[0].Rules[0]; r.String() != "1/100ms fixed_window block 200ms 1h 2h" {
			t.Errorf("zones: %v", r.String())
		}
		s.key("DELETE", "z", "127.0.0.1")
		s.want(req{}, 200)
		s.between(s.want(req{}, 429), "Retry-After", 1, 1)
		time.Sleep(300 * time.Millisecond)
		s.apply(zoneDocument(`{"rules": [{"limit": 1, "window": "100ms", "algorithm": {"name": "fixed_window"}, "block": ["200ms", "3h"]}]}`))
		s.want(req{}, 200)
		s.between(s.want(req{}, 429), "Retry-After", 10000, 3*3600)
	})
}

// TestResetEndsBlock resets a blocked key: one that the zone blocks, and one that an override blocks,
// whose rules count in the same table as those of the zone, which do not block.
func TestResetEndsBlock(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, rules := range []string{"rule 2/1h gcra block 1d", "rule 100/1h gcra\noverride 10.0.0.1 {\nrule 2/1h gcra block 1d\n}"} {
			s := serve(t, zoneOf(b, rules))
			s.want(req{ip: "10.0.0.1"}, 200, 200, 429, 429)
			if k := s.key("DELETE", "z", "10.0.0.1"); k.Blocked != 0 || k.Decision != "allowed" {
				t.Errorf("%s: after the reset: %+v", rules, k)
			}
			s.want(req{ip: "10.0.0.1"}, 200, 200, 429)
			s.blockedFor("z", "10.0.0.1", dayOfBlock)
			s.key("DELETE", "z", "10.0.0.1")
		}
	})
}

// TestBlockIsReported counts, logs and emits the start of a block, once, and shows the key
// as blocked.
func TestBlockIsReported(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		seen, global := listen(t, "rate_limit_blocked")
		c := zoneOf(b, "rule 2/1h gcra block 1d name login")
		c.global = global
		s := serve(t, c)
		before := s.metric("blocks_total", "zone", "z", "rule", "login")
		s.want(req{ip: "10.0.0.1"}, 200, 200, 429, 429, 429)
		if n := s.metric("blocks_total", "zone", "z", "rule", "login") - before; n != 1 {
			t.Errorf("blocks_total rose by %v, want 1", n)
		}
		line := s.log.wait(t, "key blocked")
		if n := len(s.log.lines(t, "key blocked")); n != 1 {
			t.Errorf("%d lines, want 1", n)
		}
		if line["zone"] != "z" || line["rule"] != "login" || line["client_ip"] != "10.0.0.1" || line["wait"].(float64) != dayOfBlock {
			t.Errorf("line %v", line)
		}
		ev := seen.wait(t, "rate_limit_blocked", 1)
		if d := ev[0].Data; len(ev) != 1 || d["zone"] != "z" || d["rule"] != "login" || d["wait"] != 24*time.Hour {
			t.Errorf("%d events, the first with %v", len(ev), d)
		}
		z := s.zones().Zones[0]
		if z.Blocked != 1 || z.Rules[0].Block != dayOfBlock {
			t.Errorf("zones: %d blocked by %+v", z.Blocked, z.Rules)
		}
		var top cli.Top
		s.admin("GET", "zones/z/top", "", &top)
		if len(top.Denied) == 0 || top.Denied[0].Blocked < dayOfBlock-600 {
			t.Errorf("top: %+v", top)
		}
		var e cli.Explanation
		s.admin("POST", "explain", fmt.Sprintf(`{"url": "%s/", "client_ip": "10.0.0.1"}`, strings.Replace(s.url, "127.0.0.1", "localhost", 1)), &e)
		if e.Decision != "denied" || e.Rule != "login" || e.Handlers[0].Zones[0].Blocked < dayOfBlock-600 {
			t.Errorf("explain: %+v", e)
		}
	})
}

// TestNoBlock denies requests by what starts no block.
func TestNoBlock(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		const cost = "\ncost {header.X-Cost}"
		for name, lines := range map[string]string{
			"cost":     "rule 5/100h gcra block 1d" + cost,
			"shadow":   "rule 2/100h gcra block 1d\nshadow",
			"limit":    "rule 10/100h gcra block 1d\noverride 10.0.0.1 {\nrule 0/1s block 1d\n}",
			"other":    "rule 2/100h gcra\nrule 50/100h block 1d",
			"inflight": "rule 2/100h gcra\nin_flight 1\nrule 10/100h block 1d",
		} {
			s := serve(t, setup{app: b.app(), site: "rate_limit {\nzone " + name + " {\n" + lines + "\n}\n}\nrespond ok"})
			costs := map[string]string{}
			if name == "cost" {
				costs["X-Cost"] = "6"
			}
			for range 5 {
				s.send(req{ip: "10.0.0.1", header: costs})
			}
			if k := s.key("GET", name, "10.0.0.1"); k.Blocked != 0 {
				t.Errorf("%s: %+v", name, k)
			}
			if n := s.zones().Zones[0].Blocked; n != 0 {
				t.Errorf("%s: %d keys are blocked", name, n)
			}
		}
	})
}

// TestBlockOfLogins blocks at the attempt after the last failure that is allowed.
// Attempts that succeed do not count, and those that are still under way block nobody.
func TestBlockOfLogins(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone logins {
					rule 3/1h block 1d
					count_status 401
				}
			}
			@wrong header X-Password wrong
			respond @wrong 401
			respond ok`})
		wrong := req{ip: "10.0.0.1", header: map[string]string{"X-Password": "wrong"}}
		right := req{ip: "10.0.0.1"}
		s.want(wrong, 401, 401)
		s.want(right, 200, 200, 200)
		s.want(wrong, 401)
		if k := s.key("GET", "logins", "10.0.0.1"); k.Blocked != 0 {
			t.Errorf("after the last failure that is allowed: %+v", k)
		}
		s.between(s.want(right, 429, 429), "Retry-After", dayOfBlock-600, dayOfBlock)
		s.blockedFor("logins", "10.0.0.1", dayOfBlock)
		s.want(req{ip: "10.0.0.2"}, 200)
	})
}

// TestBlockInvalid rejects blocks that cannot be.
func TestBlockInvalid(t *testing.T) {
	for lines, want := range map[string]string{
		"rule 2/1h block":                            "block: want a duration above zero, such as 10s",
		"rule 2/1h block 1000000d":                   `block "1000000d": want at most 52124d`,
		"rule 2/1h block 52125d":                     "block 1251000h0m0s: want at most 1250999h53m47.370496s",
		"rule 2/1h block x":                          `block "x": want a duration above zero, such as 10s`,
		"rule 2/1h block 0s":                         `block "0s": want a duration above zero, such as 10s`,
		"rule 2/1h block -1s":                        `block "-1s": want a duration above zero, such as 10s`,
		"rule 2/1h block 1ns":                        "block 1ns: want at least 1us, in whole microseconds",
		"rule 2/1h block 1h block 2h":                "block is given twice, first at Caddyfile:",
		"rule 2/1h block 1h 30m":                     "block 30m0s after 1h0m0s: want each at least as long as the one before; 1h30m is one duration",
		"rule 2/1h block 1m 1m 2m 0s":                "block 0s: want at least 1us",
		"rule 2/1h block 1m 10m x":                   `"x"`,
		"rule 2/1h block 1s 2s 3s 4s 5s 6s 7s 8s 9s": "block: 9 durations: want at most 8",
		"rule 2/1h block 1m 1h\nmax_wait 1s":         "block 1m0s beside max_wait 1s: want one of them",
		"rule 2/1h block 1h\nmax_wait 1s":            "block 1h0m0s beside max_wait 1s: want one of them",
	} {
		_, err := adapt(t, setup{site: "rate_limit {\nzone z {\n" + lines + "\n}\n}"}.caddyfile(newSite(t)))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Caddyfile:") {
			t.Errorf("%q: %v, want %q with the line", lines, err, want)
		}
	}
}

// TestBlockOfConstantKey warns of a rule that blocks in a zone that counts all clients
// together.
func TestBlockOfConstantKey(t *testing.T) {
	const warning = "a rule with block in a zone with a constant key: one client that exceeds it blocks all clients"
	for lines, n := range map[string]int{
		"key all\nrule 9/1h block 1d": 1, "key {path}\nrule 9/1h block 1d": 0, "key all\nrule 9/1h": 0,
		"key all\nrule 9/1h\noverride all {\nrule 8/1h block 1d\n}": 1,
	} {
		s := serve(t, setup{site: "rate_limit {\nzone z {\n" + lines + "\n}\n}"})
		if got := strings.Count(s.log.text(), warning); got != n {
			t.Errorf("%q: %d warnings, want %d", lines, got, n)
		}
	}
}

// TestBlockedKeyShowsWhatIsUsed checks that a key that is blocked is shown with what it has used, and
// not with all that it could.
func TestBlockedKeyShowsWhatIsUsed(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, algorithm := range []string{"fixed_window", "sliding_log", "sliding_window", "gcra"} {
			zone := newName("z")
			s := serve(t, setup{app: b.app(), site: "rate_limit {\nzone " + zone + " {\ncost 4\nrule 10/100h " + algorithm + " block 1h\nrule 1000/100h fixed_window\n}\n}\nrespond ok"})
			s.want(req{}, 200, 200, 429, 429)
			k := s.key("GET", zone, "127.0.0.1")
			if k.Blocked == 0 || k.Rules[0].Used != 8 || k.Rules[1].Used != 8 || k.Rules[0].Remaining != 0 {
				t.Errorf("%s: blocked for %v, %+v, want 8 used of each rule and 0 left", algorithm, k.Blocked, k.Rules)
			}
		}
	})
}
