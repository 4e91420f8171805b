package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/cli"
)

// TestExplainBody explains requests that are counted by a field of their body.
func TestExplainBody(t *testing.T) {
	s := serve(t, setup{site: byPhone("deny", "1/1h", "respond ok")})
	for _, c := range []struct{ kind, body, part, decision string }{
		{"application/json", `{"phone": 1e2}`, "100", "denied"},
		{"application/x-www-form-urlencoded", `phone=200`, "200", "allowed"},
		{"text/plain", `phone=200`, "", "denied"},
		{"application/json", ``, "", "denied"},
	} {
		if c.part == "100" {
			s.want(req{method: "POST", body: c.body, header: map[string]string{"Content-Type": c.kind}}, 200)
		}
		for range 2 {
			body := fmt.Sprintf(`{"method": "POST", "url": "http://localhost:8001/", "client_ip": "10.0.0.1", "headers": {"content-type": %q}, "body": %q}`, c.kind, c.body)
			var e cli.Explanation
			if status, text := s.admin("POST", "explain", body, &e); status != 200 {
				t.Fatal(text)
			}
			if e.Decision != c.decision || len(e.Handlers) != 1 || e.Handlers[0].Zones[0].Parts[0] != c.part {
				t.Errorf("%s %q: %+v, want %s", c.kind, c.body, e, c.decision)
			}
		}
	}
}

// TestExplain checks that explain follows routes and matchers as a request does and
// charges nothing.
func TestExplain(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
	rate_limit /api/* {
		zone api {
			match path /api/v1/*
			exempt 10.9.0.0/16
			key {header.X-Account}
			key_missing deny
			rule 2/100h name few
		}
		zone all {
			rule 10/100h
		}
		zone watch {
			rule 1/100h
			shadow
		}
	}
	handle /other {
		rate_limit {client_ip} 1/100h {
			name other
		}
	}
	respond ok`})
		explain := func(path, ip, account string) (e cli.Explanation) {
			body := fmt.Sprintf(`{"url": "http://localhost:8001%s", "client_ip": %q, "headers": {"x-account": %q}}`, path, ip, account)
			if status, text := s.admin("POST", "explain", body, &e); status != 200 {
				t.Fatal(text)
			}
			return e
		}
		q := req{path: "/api/v1/x", ip: "10.0.0.1", header: map[string]string{"X-Account": "a"}}
		for range 3 {
			if e := explain(q.path, q.ip, "a"); e.Decision != "allowed" || len(e.Handlers) != 1 || len(e.Handlers[0].Zones) != 3 || e.Handlers[0].Zones[0].Rules[0].Remaining != 2 {
				t.Fatalf("%+v", e)
			}
		}
		s.want(q, 200, 200)
		e := explain(q.path, q.ip, "a")
		if e.Decision != "denied" || e.Zone != "api" || e.Rule != "few" || e.RetryIn == nil || e.Handlers[0].Zones[2].Decision != "shadow_denied" {
			t.Fatalf("%+v", e)
		}
		s.want(q, 429)
		if e := explain(q.path, q.ip, ""); e.Rule != "key_missing" {
			t.Errorf("%+v", e)
		}
		if e := explain(q.path, "10.9.0.1", "a"); e.Decision != "allowed" || e.Handlers[0].Zones[0].Decision != "skipped" {
			t.Errorf("%+v", e)
		}
		if e := explain("/api/v2", q.ip, "a"); e.Decision != "allowed" || e.Handlers[0].Without[0] != "api" || len(e.Handlers[0].Zones) != 2 {
			t.Errorf("%+v", e)
		}
		if e := explain("/else", q.ip, "a"); e.Decision != "none" || len(e.Handlers) != 0 {
			t.Errorf("%+v", e)
		}
		s.want(req{path: "/other"}, 200)
		if e := explain("/other", "127.0.0.1", ""); e.Decision != "denied" || e.Zone != "other" {
			t.Errorf("%+v", e)
		}
	})
}

// TestExplainOverride checks that explain names the override that applies to a request.
func TestExplainOverride(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
	rate_limit {
		zone api {
			key {header.X-Account} {client_ip}
			rule 2/100h
			override gold * unlimited
			override 7 10.0.0.1 {
				rule 5/100h
			}
		}
	}
	respond ok`})
		for account, want := range map[string]struct {
			override []string
			decision string
		}{"gold": {[]string{"gold", "*"}, "skipped"}, "7": {[]string{"7", "10.0.0.1"}, "allowed"}, "8": {nil, "allowed"}} {
			var e cli.Explanation
			body := fmt.Sprintf(`{"url": "http://localhost:8001/", "client_ip": "10.0.0.1", "headers": {"X-Account": %q}}`, account)
			if status, text := s.admin("POST", "explain", body, &e); status != 200 {
				t.Fatal(text)
			}
			if k := e.Handlers[0].Zones[0]; !slices.Equal(k.Override, want.override) || k.Decision != want.decision {
				t.Errorf("account %s: override %q, %s; want %q, %s", account, k.Override, k.Decision, want.override, want.decision)
			}
		}
	})
}

// TestExplainMissing checks that explain says what counts a request without a part of a
// zone's key, and that the hash it names is of the key that is charged.
func TestExplainMissing(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		zone := func(missing string) string {
			return "zone " + missing + " {\nexempt 10.9.0.0/16\nkey {header.X-Account} {header.X-Part}\nkey_missing " + missing + "\nrule 9/100h\nshadow\n}\n"
		}
		s := serve(t, setup{app: b.app(), site: "rate_limit {\n" + zone("client_ip") + zone("share") + zone("skip") + zone("deny") + "}\nrespond ok"})
		explain := func(ip string, headers string) []limiter.Key {
			var e cli.Explanation
			body := fmt.Sprintf(`{"url": "http://localhost:8001/", "client_ip": %q, "headers": {%s}}`, ip, headers)
			if status, text := s.admin("POST", "explain", body, &e); status != 200 {
				t.Fatal(text)
			}
			return e.Handlers[0].Zones
		}
		s.want(req{ip: "10.0.0.1", header: map[string]string{"X-Account": "a"}}, 200)
		for ip, address := range map[string]string{"10.0.0.1": "10.0.0.1", "2001:db8::1": "2001:db8::/64"} {
			for i, k := range explain(ip, `"X-Account": "a"`) {
				if want := []string{"client_ip", "share", "skip", "deny"}[i]; k.KeyMissing != want || len(k.Missing) != 1 || k.Missing[0] != "{http.request.header.X-Part}" {
					t.Errorf("%s: %+v, want key_missing %s", ip, k, want)
				}
				if (k.KeyMissing == "client_ip") != (k.Address == address) {
					t.Errorf("%s: address %q of %s", ip, k.Address, k.KeyMissing)
				}
			}
		}
		k := explain("10.0.0.1", `"X-Account": "a"`)[0]
		var kept limiter.Key
		if status, text := s.admin("GET", "zones/client_ip/key?hash="+k.Key, "", &kept); status != 200 || kept.Rules[0].Remaining != 8 {
			t.Errorf("%d %s, want a key that was charged once", status, text)
		}
		for what, zones := range map[string][]limiter.Key{"complete": explain("10.0.0.1", `"X-Account": "a", "X-Part": "b"`), "exempt": explain("10.9.0.1", "")} {
			for _, k := range zones {
				if k.KeyMissing != "" || k.Missing != nil || k.Address != "" {
					t.Errorf("%s: %+v", what, k)
				}
			}
		}
	})
}

// TestExplainAsDecided checks that explain names the rule and the wait of the denial that the same
// request then gets: of a duplicate, of a denial that starts a block, and of several zones.
func TestExplainAsDecided(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone twice {
					match path /twice*
					prevent_duplicates 1h body
				}
				zone counted {
					match path /twice/counted
					rule 2/10m
				}
				zone login {
					match path /login
					rule 1/1m gcra block 1d name tries
				}
				zone short {
					match path /login
					rule 2/1h
				}
				zone patient {
					match path /patient
					rule 1/1m
					prevent_duplicates 2h
				}
			}
			respond ok
			handle_errors {
				respond "{http.rate_limit.exceeded.name} {http.rate_limit.exceeded.rule}" 429
			}`})
		for i, c := range []struct {
			path, body string
			denies     string // what the last request is denied by; empty: none
			starts     bool   // whether that starts a block
			times      int    // requests before it
			otherBody  string
		}{
			{path: "/twice", body: "a", denies: "twice prevent_duplicates", times: 1},
			{path: "/twice", body: "b", times: 1, otherBody: "c"},
			{path: "/twice/counted", body: "d", denies: "twice prevent_duplicates", times: 1},
			{path: "/login", denies: "login tries", starts: true, times: 1},
			{path: "/patient", denies: "patient 1", times: 1},
		} {
			ip := fmt.Sprintf("10.0.3.%d", i)
			q := req{method: "POST", path: c.path, body: c.body, ip: ip}
			for range c.times {
				s.want(q, 200)
			}
			if c.otherBody != "" {
				q.body = c.otherBody
			}
			var e cli.Explanation
			described := fmt.Sprintf(`{"method": "POST", "url": %q, "client_ip": %q, "body": %q}`, s.url+c.path, ip, q.body)
			if status, text := s.admin("POST", "explain", described, &e); status != 200 {
				t.Fatal(text)
			}
			if got := strings.TrimSpace(e.Zone + " " + e.Rule); got != c.denies {
				t.Errorf("%s: explained as denied by %q, want %q: %+v", c.path, got, c.denies, e)
			}
			if c.denies == "" {
				s.want(q, 200)
				continue
			}
			starts := slices.ContainsFunc(e.Handlers[0].Zones, func(k limiter.Key) bool { return k.StartsBlock })
			if starts != c.starts {
				t.Errorf("%s: starts a block: %v", c.path, starts)
			}
			a := s.want(q, 429)
			if a.body != c.denies || e.RetryIn == nil {
				t.Fatalf("%s: denied by %q, explained %+v", c.path, a.body, e)
			}
			s.between(a, "Retry-After", int(*e.RetryIn)-60, int(*e.RetryIn)+1)
		}
	})
}

// TestExplainBesideALimitOfZero has a zone whose counts deny before one that denies regardless of its counts, which is decided
// first: explain names the zone that the denial names, and its response.
func TestExplainBesideALimitOfZero(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone counts {
					rule 1/1h
					respond 403
				}
				zone lists {
					rule 9/1h
					override 10.0.0.9 {
						rule 0/1h
					}
				}
				zone lacks {
					match path /keyed
					key {query.k}
					key_missing deny
					rule 9/1h
				}
			}
			respond ok`})
		for i, c := range []struct {
			ip, path    string
			status      int
			zone, cause string
		}{
			{"10.0.0.1", "/", 403, "counts", "rule"},
			{"10.0.0.9", "/", 429, "lists", "rule"},
			{"10.0.0.1", "/keyed", 429, "lacks", "key_missing"},
			{"10.0.0.9", "/keyed", 429, "lists", "rule"},
		} {
			s.send(req{ip: c.ip})
			var e cli.Explanation
			if status, text := s.admin("POST", "explain", fmt.Sprintf(`{"url": %q, "client_ip": %q}`, s.url+c.path, c.ip), &e); status != 200 {
				t.Fatal(text)
			}
			s.want(req{ip: c.ip, path: c.path}, c.status)
			line, _ := s.log.access(t, 2*i+2)[2*i+1]["rate_limit"].(map[string]any)
			if line["zone"] != c.zone || e.Zone != c.zone || e.Cause != c.cause || (e.RetryIn != nil) != (c.zone == "counts") {
				t.Errorf("%+v: explained as denied by %q, cause %q, retry %v; logged %v", c, e.Zone, e.Cause, e.RetryIn, line)
			}
		}
	})
}
