package test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestShadowOnlyReports(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		emitted, subscribe := listen(t, "rate_limit_exceeded", "rate_limit_shadow_exceeded")
		s := serve(t, setup{app: b.app(), global: subscribe, site: `
			rate_limit {
				log_key
				zone dark {
					shadow
					rule 1/1h name r
					in_flight 1
					prevent_duplicates 1h
					max_wait 30s
					respond 500 "never"
				}
				zone slow {
					shadow
					rule 1/1h leaky_bucket burst 3
				}
				zone blind {
					shadow
					key {header.X-None}
					key_missing deny
					rule 1/1h
				}
			}
			respond "{http.rate_limit.dark.decision} {http.rate_limit.dark.remaining} {http.rate_limit.slow.decision} {http.rate_limit.blind.decision}"`})
		before := s.metric("decisions_total", "zone", "dark", "decision", "shadow_denied")
		for i, want := range []string{
			"allowed 0 allowed shadow_denied", "shadow_denied 0 shadow_delayed shadow_denied",
			"shadow_denied 0 shadow_delayed shadow_denied", "shadow_denied 0 shadow_denied shadow_denied",
		} {
			a, took := s.timed(req{method: "POST"})
			if a.status != 200 || a.body != want || took > 10*time.Second {
				t.Errorf("request %d: %d %q after %v, want %q", i+1, a.status, a.body, took, want)
			}
			s.wantNoHeader(a, "RateLimit", "RateLimit-Policy", "Retry-After", "Cache-Control")
		}
		if n := s.metric("decisions_total", "zone", "dark", "decision", "shadow_denied") - before; n != 3 {
			t.Errorf("shadow_denied rose by %v, want 3", n)
		}
		if lines := s.log.lines(t, "rate limit exceeded"); len(lines) > 0 {
			t.Errorf("log lines %v, want none", lines)
		}
		if n := len(s.log.lines(t, "rate limit would be exceeded")); n != 8 {
			t.Errorf("%d lines of what would be denied, want 8", n)
		}
		if n := len(emitted.named("rate_limit_exceeded")); n > 0 {
			t.Errorf("%d events, want none", n)
		}
		zones := make(map[string]int)
		for _, e := range emitted.wait(t, "rate_limit_shadow_exceeded", 8) {
			zones[e.Data["zone"].(string)]++
			wait, _ := e.Data["wait"].(time.Duration)
			for _, field := range []string{"remote_ip", "client_ip", "method", "host"} {
				if e.Data[field] == nil || e.Data[field] == "" {
					t.Errorf("event without %s: %v", field, e.Data)
				}
			}
			switch e.Data["zone"] {
			case "dark":
				if e.Data["rule"] != "r" || wait < 59*time.Minute || wait > time.Hour || e.Data["key"] != "127.0.0.1" {
					t.Errorf("event %v", e.Data)
				}
			case "blind":
				if e.Data["rule"] != "key_missing" || wait != 0 {
					t.Errorf("event %v", e.Data)
				}
			}
		}
		if zones["dark"] != 3 || zones["slow"] != 1 || zones["blind"] != 4 {
			t.Errorf("shadow events of %v", zones)
		}
		line := s.log.access(t, 4)[3]
		if d, _ := line["rate_limit"].(map[string]any); d["zone"] != "dark" || d["rule"] != "r" || d["decision"] != "shadow_denied" {
			t.Errorf("access log line %v", line)
		}
	})
}

// TestShadowIsChargedWhenAdmitted checks that a request denied by another zone is
// not charged to a shadow zone and that a shadow denial is charged to the others.
func TestShadowIsChargedWhenAdmitted(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone dark {
					shadow
					key all
					rule 3/1h
				}
				zone real {
					rule 2/1h
				}
				zone far {
					match header X-Deny *
					key {header.X-None}
					key_missing deny
					rule 1/1h
				}
			}
			respond "{http.rate_limit.dark.remaining} {http.rate_limit.dark.decision} {http.rate_limit.real.remaining}"
			handle_errors {
				respond "{http.rate_limit.dark.remaining} {http.rate_limit.dark.decision} {http.rate_limit.exceeded.name}"
			}`})
		for i, c := range []struct {
			q      req
			status int
			want   string
		}{
			{req{ip: "10.0.0.1"}, 200, "2 allowed 1"},
			{req{ip: "10.0.0.1"}, 200, "1 allowed 0"},
			{req{ip: "10.0.0.1"}, 429, "1 denied_elsewhere real"},
			{req{ip: "10.0.0.2", header: map[string]string{"X-Deny": "x"}}, 429, "1 denied_elsewhere far"},
			{req{ip: "10.0.0.2"}, 200, "0 allowed 1"},
			{req{ip: "10.0.0.2"}, 200, "0 shadow_denied 0"},
			{req{ip: "10.0.0.3"}, 200, "0 shadow_denied 1"},
		} {
			if a := s.want(c.q, c.status); a.body != c.want {
				t.Errorf("request %d: %q, want %q", i+1, a.body, c.want)
			}
		}
	})
}

// TestAccessLogNamesTheDenial checks that the access log line names the denying zone
// and not the shadow zones beside it.
func TestAccessLogNamesTheDenial(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone before {
					shadow
					rule 1/1h
				}
				zone one {
					rule 1/1h name first
				}
				zone two {
					rule 1/1h name second
				}
				zone after {
					shadow
					rule 1/1h
				}
			}
			respond ok`})
		s.want(req{}, 200, 429)
		lines := s.log.access(t, 2)
		if lines[0]["rate_limit"] != nil {
			t.Errorf("an admitted request has %v", lines[0]["rate_limit"])
		}
		if d, _ := lines[1]["rate_limit"].(map[string]any); d["zone"] != "one" || d["rule"] != "first" || d["decision"] != "denied" {
			t.Errorf("access log %v, want zone one, rule first, denied", d)
		}
	})
}

// TestShadowReportsDelays checks that the queue of a zone in shadow reports whom it would delay.
func TestShadowReportsDelays(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone queue {
					shadow
					rule 1/1h leaky_bucket burst 3
				}
				zone real {
					rule 5/1h
				}
			}
			respond {http.rate_limit.queue.decision}`})
		before := s.metric("decisions_total", "zone", "queue", "decision", "shadow_delayed")
		for i, want := range []string{"allowed", "shadow_delayed", "shadow_delayed", "shadow_denied"} {
			a, took := s.timed(req{})
			if a.status != 200 || a.body != want || took > 10*time.Second {
				t.Errorf("request %d: %d %q after %v, want %q at once", i+1, a.status, a.body, took, want)
			}
			d, _ := s.log.access(t, i+1)[i]["rate_limit"].(map[string]any)
			if got, _ := d["decision"].(string); got != want && (got != "" || i > 0) {
				t.Errorf("request %d: access log %v, want %s", i+1, d, want)
			}
			if want == "shadow_delayed" && (d["zone"] != "queue" || d["rule"] != "") {
				t.Errorf("request %d: access log %v", i+1, d)
			}
		}
		if n := s.metric("decisions_total", "zone", "queue", "decision", "shadow_delayed") - before; n != 2 {
			t.Errorf("shadow_delayed rose by %v, want 2", n)
		}
	})
}

// TestShadowWithDuplicates repeats requests in a zone in shadow with prevent_duplicates. Its rules and
// the memory of duplicates are charged together, as if it denied, wherever other zones lie.
func TestShadowWithDuplicates(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, other := range []string{"", "zone other {\nstore local\nrule 100/1h\n}\n"} {
			for _, shadow := range []string{"", "shadow\n"} {
				zone := newName("z")
				s := serve(t, setup{app: b.app(), site: "rate_limit {\nzone " + zone + " {\nrule 3/1h\nprevent_duplicates 1h\n" + shadow + "}\n" + other + "}\nrespond ok"})
				before := s.metric("decisions_total", "zone", zone, "decision", "allowed")
				for _, path := range []string{"/a", "/a", "/a", "/b", "/b", "/c", "/d", "/d", "/c"} {
					s.send(req{method: "POST", path: path})
				}
				if n := s.metric("decisions_total", "zone", zone, "decision", "allowed") - before; n != 3 {
					t.Errorf("%q beside %q: %v of 9 requests were allowed, want 3", shadow, other, n)
				}
			}
		}
	})
}

// TestZoneInShadowAndEnforced has a zone in two handlers, of which one enforces it. It is shown as
// enforced, with each load.
func TestZoneInShadowAndEnforced(t *testing.T) {
	for range 12 {
		s := serve(t, setup{
			site: "rate_limit {\nzone z {\nshadow\nrule 1/1h\n}\n}\nrespond ok",
			more: "http://:8002 {\nrate_limit {\nzone z {\nrule 1/1h\n}\n}\nrespond ok\n}",
		})
		if z := s.zones().Zones[0]; z.Shadow {
			t.Fatal("the zone is shown in shadow")
		}
	}
}

// TestShadowDecidesAsEnforced sends the same requests to a zone that is enforced and to one in shadow,
// which would deny the same of them and is charged the same.
func TestShadowDecidesAsEnforced(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for n, options := range []string{
			"rule 3/1h\nprevent_duplicates 1h", "rule 3/1h fixed_window\nprevent_duplicates 1h body", "rule 5/1h name a\nrule 2/1h fixed_window name b",
			"rule 2/1h block 1h", "rule 3/1h\ncount_status 401", "prevent_duplicates 1h\nin_flight 2",
			"rule 10/1h token_bucket\ncost {header.X-Cost}\nsettle {http.response.header.X-N}\nhold\nprevent_duplicates 1h",
			"rule 6/1h\ncost {header.X-Cost}\nprevent_duplicates 1h\ncount_status 4xx", "rule 8/1h\nprevent_duplicates 1h\nsettle {http.response.header.X-N}",
			"rule 3/1h\nkey {header.X-Key}\nkey_missing deny\nprevent_duplicates 1h", "rule {header.X-Cost}/1h else 3\nprevent_duplicates 1h",
			"rule 4/1h gcra burst 2\nprevent_duplicates 1h\nrule 3/2h", "rule 2/1h\nprevent_duplicates 1h\noverride a {\nrule 0/1s\n}\nkey {header.X-Key}\nkey_missing share",
		} {
			if enforced, shadow := decidedOf(t, b, options, "", n), decidedOf(t, b, options, "shadow\n", n); enforced != shadow {
				t.Errorf("%s:\n%s enforced\n%s in shadow", options, enforced, shadow)
			}
		}
	})
}

// decidedOf sends 40 requests of a seed to a zone, and returns which were, or would be, denied, and what
// was used in the end.
func decidedOf(t *testing.T, b backend, options, shadow string, seed int) string {
	zone := newName("z")
	s := serve(t, setup{app: b.app(), site: "rate_limit {\nzone " + zone + " {\n" + options + "\n" + shadow + "}\n}\n" + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("X-N", r.Header.Get("X-Cost"))
		if r.URL.Path == "/x" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		return nil
	})})
	var out strings.Builder
	random := rand.New(rand.NewPCG(uint64(seed), 7))
	before := 0.0
	for range 40 {
		q := req{method: "POST", path: "/" + string("abcx"[random.IntN(4)]), body: string("12"[random.IntN(2)]), header: map[string]string{"X-Cost": string("1234"[random.IntN(4)])}}
		if k := []string{"", "a", "b"}[random.IntN(3)]; k != "" {
			q.header["X-Key"] = k
		}
		denied := s.send(q).status == http.StatusTooManyRequests
		if now := s.metric("decisions_total", "zone", zone, "decision", "shadow_denied"); shadow != "" {
			denied, before = now > before, now
		}
		fmt.Fprint(&out, map[bool]int{true: 1}[denied])
	}
	ended(t)
	part := "127.0.0.1"
	if strings.Contains(options, "X-Key") {
		part = "b"
	}
	for _, r := range s.key(http.MethodGet, zone, part).Rules {
		fmt.Fprint(&out, " ", r.Used)
	}
	return out.String()
}
