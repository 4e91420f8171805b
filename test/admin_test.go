package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/topk"
)

// adminAPI returns the handler of /rate_limit/ on Caddy's admin endpoint.
func adminAPI(t *testing.T) caddy.AdminHandler {
	t.Helper()
	info, err := caddy.GetModule("admin.api.rate_limit")
	if err != nil {
		t.Fatal(err)
	}
	return info.New().(caddy.AdminRouter).Routes()[0].Handler
}

// admin calls the handler of the admin API directly, without Caddy's origin
// checks, and decodes the response into out.
func (s *site) admin(method, path, body string, out any) (status int, text string) {
	s.Helper()
	r := httptest.NewRequestWithContext(s.Context(), method, "http://localhost:2019/rate_limit/"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	err := adminAPI(s.T).ServeHTTP(w, r)
	var wrong caddy.APIError
	if errors.As(err, &wrong) {
		return wrong.HTTPStatus, wrong.Err.Error()
	}
	if err != nil {
		s.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			s.Fatalf("%s: %v", w.Body, err)
		}
	}
	return w.Code, w.Body.String()
}

// zones returns the admin API's report on all zones.
func (s *site) zones() (all cli.Zones) {
	s.Helper()
	if status, text := s.admin("GET", "zones", "", &all); status != 200 {
		s.Fatal(text)
	}
	return all
}

func (s *site) key(method, zone string, parts ...string) (k limiter.Key) {
	s.Helper()
	q := url.Values{"part": parts}
	if status, text := s.admin(method, "zones/"+zone+"/key?"+q.Encode(), "", &k); status != 200 {
		s.Fatalf("status %d: %s", status, text)
	}
	return k
}

// TestAdminKey checks that reading a key reports its state under every algorithm
// and override, and charges nothing.
func TestAdminKey(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, alg := range []string{"sliding_log", "fixed_window", "sliding_window", "gcra", "token_bucket", "leaky_bucket nodelay"} {
			s := serve(t, zoneOf(b, "rule 3/100h "+alg+" name hard\nrule 1000/200h\noverride 10.0.0.9 unlimited\noverride 10.0.0.8 {\nrule 0/1s\n}\noverride 10.1.0.0/16 {\nrule 7/100h\n}"))
			mode := "local"
			if b.redis != nil {
				mode = "shared"
			}
			ip := fmt.Sprintf("10.0.1.%d", len(alg)) // Redis keeps the previous round's counts
			for left := int64(3); left >= 0; left-- {
				for range 3 {
					k := s.key("GET", "z", ip)
					if k.Mode != mode || len(k.Rules) != 2 || k.Rules[0].Remaining != left || k.Rules[0].Limit != 3 || k.Rules[0].Admits != (left > 0) {
						t.Fatalf("%s: %d left: %+v", alg, left, k)
					}
					if (k.Decision == "allowed") != (left > 0) || left == 0 && (k.Rule != "hard" || k.RetryIn == nil || *k.RetryIn < 1000) {
						t.Errorf("%s: %d left: %+v", alg, left, k)
					}
				}
				if left > 0 {
					s.want(req{ip: ip}, 200)
				}
			}
			s.want(req{ip: ip}, 429)
			if k := s.key("GET", "z", "10.0.0.9"); k.Decision != "skipped" {
				t.Errorf("unlimited: %+v", k)
			}
			if k := s.key("GET", "z", "10.0.0.8"); k.Decision != "denied" || k.Rule != "1" {
				t.Errorf("blocked: %+v", k)
			}
			if k := s.key("GET", "z", "10.1.2.3"); len(k.Rules) != 1 || k.Rules[0].Limit != 7 || k.Override[0] != "10.1.0.0/16" {
				t.Errorf("override: %+v", k)
			}
			// An IPv4-mapped address is the same client.
			if k := s.key("GET", "z", "::ffff:"+ip); k.Decision != "denied" {
				t.Errorf("mapped: %+v", k)
			}
		}
	})
}

// TestAdminReset checks that a reset frees one key and no other.
func TestAdminReset(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, alg := range []string{"sliding_log", "fixed_window", "sliding_window", "gcra"} {
			s := serve(t, zoneOf(b, "rule 2/100h "+alg+"\noverride 10.9.0.0/16 {\nrule 1/100h "+alg+"\n}"))
			mine, other, special := req{ip: "10.0.1." + fmt.Sprint(len(alg))}, req{ip: "10.0.2." + fmt.Sprint(len(alg))}, req{ip: "10.9.1." + fmt.Sprint(len(alg))}
			s.want(mine, 200, 200, 429)
			s.want(other, 200, 200, 429)
			s.want(special, 200, 429)
			k := s.key("DELETE", "z", mine.ip)
			want := "in this instance"
			if b.redis != nil {
				want = "everywhere"
			}
			if k.Reset != want || k.Decision != "allowed" || k.Rules[0].Remaining != 2 {
				t.Errorf("%s: %+v", alg, k)
			}
			s.want(mine, 200, 200, 429)
			s.want(other, 429)
			if k := s.key("DELETE", "z", special.ip); k.Decision != "allowed" {
				t.Errorf("%+v", k)
			}
			s.want(special, 200, 429)
			// By its hash, as the busiest keys are shown.
			if status, text := s.admin("DELETE", "zones/z/key?hash="+s.key("GET", "z", mine.ip).Key, "", nil); status != 200 {
				t.Error(text)
			}
			s.want(mine, 200, 200, 429)
		}
	})
}

// TestResetDuplicates checks that resetting a key leaves what prevent_duplicates remembers, also
// of the key's own requests.
func TestResetDuplicates(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "prevent_duplicates 1h\nrule 9/1h"))
		post := func(path string) req { return req{method: "POST", ip: "10.0.0.1", path: path, host: "x.example"} }
		s.want(post("/a"), 200, 429)
		if k := s.key("DELETE", "z", "10.0.0.1"); k.Rules[0].Remaining != 9 || k.Error != "" {
			t.Errorf("%+v", k)
		}
		s.want(post("/a"), 429)
		s.want(post("/b"), 200, 429)
	})
}

// TestSharedCountersAreNotReset checks that a reset leaves a shared overflow
// counter as it is and reports the overflow.
func TestSharedCountersAreNotReset(t *testing.T) {
	s := serve(t, zoneOf(backend{}, "rule 2/100h\nmax_keys 1"))
	s.want(req{ip: "10.0.0.1"}, 200)
	s.want(req{ip: "10.0.0.2"}, 200)
	s.want(req{ip: "10.0.0.3"}, 200, 429)
	for _, method := range []string{"GET", "DELETE"} {
		if k := s.key(method, "z", "10.0.0.2"); !k.Overflowed || k.Decision != "denied" {
			t.Errorf("%s: %+v", method, k)
		}
	}
	s.want(req{ip: "10.0.0.2"}, 429)
	for ip, left := range map[string]int64{"10.0.0.1": 1, "11.0.0.1": 2} {
		if k := s.key("GET", "z", ip); k.Overflowed || k.Rules[0].Remaining != left {
			t.Errorf("%s: %+v", ip, k)
		}
	}
}

// TestResetWhileRedisIsDown checks that a reset reports that it reached only this
// instance.
func TestResetWhileRedisIsDown(t *testing.T) {
	r := redistest.Start(t)
	c := zoneOf(backend{r}, "rule 1/100h")
	s := serve(t, c)
	s.want(req{}, 200, 429)
	r.Kill()
	until(t, "the store to be down", func() bool { return !s.zones().Stores[0].Up })
	k := s.key("DELETE", "z", "127.0.0.1")
	if k.Reset != "in this instance" || !strings.HasPrefix(k.Error, "the store is unavailable") || k.Mode != "fallback" || k.Decision != "allowed" {
		t.Errorf("%+v", k)
	}
	s.want(req{}, 200, 429)
}

// TestResetKeepsPermits checks that a request in flight keeps its permit when its
// key is reset.
func TestResetKeepsPermits(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		s := serve(t, setup{app: b.app(), site: "rate_limit {\nzone z {\nin_flight 1\nrule 5/100h\n}\n}\n" + handle(t, "*", g.ServeHTTP)})
		first := s.open(g, req{})
		if k := s.key("DELETE", "z", "127.0.0.1"); k.Decision != "denied" || k.Rule != "in_flight" || k.Rules[0].Remaining != 5 {
			t.Errorf("%+v", k)
		}
		s.want(req{}, 429)
		g.goOn <- true
		<-first
		until(t, "the permit to be released", func() bool { return s.key("GET", "z", "127.0.0.1").Decision == "allowed" })
	})
}

// TestAdminTop checks the ranking of keys, which are shown as hashes unless
// log_key is on.
func TestAdminTop(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, logKey := range []bool{false, true} {
			zone := fmt.Sprintf("z%t", logKey)
			c := setup{app: b.app(), site: "rate_limit {\nzone " + zone + " {\nrule 3/100h\noverride 10.0.0.66 {\nrule 0/1s\n}\noverride 10.0.0.99 unlimited\n}\n}\nrespond ok"}
			if logKey {
				c.site = strings.Replace(c.site, "rate_limit {", "rate_limit {\nlog_key", 1)
			}
			s := serve(t, c)
			for topk.Epoch(clock.Now()) != topk.Epoch(clock.Now()+(5*time.Second).Microseconds()) { // counts would be halved
				time.Sleep(100 * time.Millisecond)
			}
			for i, n := range []int{2, 6, 4} {
				for range n {
					s.send(req{ip: fmt.Sprintf("10.0.1.%d", i)})
				}
			}
			for range 8 {
				s.send(req{ip: "10.0.0.66"})
				s.send(req{ip: "10.0.0.99"})
			}
			var top cli.Top
			s.admin("GET", "zones/"+zone+"/top", "", &top)
			want := []uint64{8, 6, 4, 2}
			for i, h := range top.Busy {
				if h.Times != want[i] || (h.Name != "") != logKey {
					t.Errorf("rank %d: %+v", i, h)
				}
			}
			if len(top.Busy) != 4 || len(top.Denied) < 2 || top.Denied[0].Times != 8 || top.Denied[0].Key != s.key("GET", zone, "10.0.0.66").Key {
				t.Errorf("%+v", top)
			}
			if logKey && top.Busy[0].Name != "10.0.0.66" {
				t.Errorf("%+v", top.Busy[0])
			}
			s.reload(c)
			if s.admin("GET", "zones/"+zone+"/top", "", &top); len(top.Busy) != 4 {
				t.Errorf("after a reload: %+v", top)
			}
			c.site = strings.Replace(c.site, "log_key", "", 1)
			s.reload(c)
			top = cli.Top{}
			if s.admin("GET", "zones/"+zone+"/top", "", &top); len(top.Busy) != 4 || slices.ContainsFunc(top.Busy, func(h topk.Hit) bool { return h.Name != "" }) {
				t.Errorf("after a reload without log_key: %+v", top)
			}
		}
	})
}

func TestAdminErrors(t *testing.T) {
	s := serve(t, zoneOf(backend{}, "rule 2/100h\nkey {client_ip} a{http.request.method}"))
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "nothing", "", 404, "no such endpoint"},
		{"GET", "zones/", "", 404, "no such endpoint"},
		{"GET", "zones/z", "", 404, "no such endpoint"},
		{"GET", "zones/nobody/key?part=1", "", 404, `zone "nobody": there is none`},
		{"GET", "zones/z%0a%00/key?part=1", "", 404, `zone "z\n\x00"`},
		{"POST", "zones", "", 405, "want GET"},
		{"POST", "zones/z/key?part=1&part=2", "", 405, "want GET, DELETE"},
		{"GET", "zones/z/key", "", 400, "0 parts: want 2"},
		{"GET", "zones/z/key?part=1", "", 400, "1 parts: want 2"},
		{"GET", "zones/z/key?part=&part=b", "", 400, "part 1 is empty"},
		{"GET", "zones/z/key?part=a&part=" + strings.Repeat("x", 9000), "", 400, "at most 8192"},
		{"GET", "zones/z/key?part=a&part=b&cost=0", "", 400, `cost "0"`},
		{"GET", "zones/z/key?hash=x", "", 400, `hash "x"`},
		{"DELETE", "zones/z/key?hash=" + strings.Repeat("A", 21), "", 400, "want a key"},
		{"GET", "explain", "", 405, "want POST"},
		{"POST", "explain", "{}", 400, "url"},
		{"POST", "explain", `{"url": "http://x/", "client_ip": "y"}`, 400, `client_ip "y"`},
		{"POST", "explain", `{"url": "http://x/", "client_ip": "1.2.3.4", "payload": 1}`, 400, "unknown field"},
		{"POST", "explain", `{"url": "http://x/", "client_ip": "1.2.3.4"} {}`, 400, "want a request"},
		{"POST", "explain", `{"url": "` + strings.Repeat("x", 100_000) + `"}`, 400, "too large"},
	} {
		status, text := s.admin(c.method, c.path, c.body, nil)
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s %.80s: %d %q, want %d %q", c.method, c.path, status, text, c.status, c.want)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/rate_limit/explain", strings.NewReader(`{"url": "http://x/", "client_ip": "1.2.3.4"}`))
	r.Header.Set("Content-Type", "text/plain")
	if err := adminAPI(t).ServeHTTP(httptest.NewRecorder(), r); err == nil || !strings.Contains(err.Error(), "application/json") {
		t.Errorf("a form's content type: %v", err)
	}
}

// TestPageIsSelfContained checks that the page references no external resource and
// that its content security policy allows none.
func TestPageIsSelfContained(t *testing.T) {
	s := serve(t, zoneOf(backend{}, "rule 2/100h"))
	_, html := s.admin("GET", "", "", nil)
	if len(html) < 50_000 || len(html) > 200_000 || strings.Count(html, "<script") != 1 || strings.Contains(html, "/*script*/") {
		t.Errorf("a page of %d bytes", len(html))
	}
	for _, not := range []string{"<script src", "<link rel=\"stylesheet", "@import", "url(", "innerHTML =", "eval(", "style=\""} {
		if strings.Contains(html, not) {
			t.Errorf("the page contains %q", not)
		}
	}
	w := httptest.NewRecorder()
	if err := adminAPI(t).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/rate_limit/", nil)); err != nil {
		t.Fatal(err)
	}
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; script-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Error(policy)
	}
}

func TestAdminZones(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c := zoneOf(b, "rule 3/100h gcra burst 2 name r\nkey {client_ip} x\noverride 1.1.1.1 x unlimited")
		s := serveRuled(t, c)
		s.want(req{ip: "10.0.0.77"}, 200, 200, 429)
		var all cli.Zones
		s.admin("GET", "zones", "", &all)
		z := all.Zones[0]
		if len(all.Zones) != 1 || z.Name != "z" || z.Origin != "config" || !z.Enabled || z.Overrides != 1 || z.Handlers != 1 ||
			z.Rules[0].Name != "r" || z.Rules[0].Limit != 3 || z.Rules[0].Window != 360000 || z.Rules[0].Algorithm != "gcra" || string(z.Rules[0].Options) == "" {
			t.Errorf("%+v", z)
		}
		if z.Decisions["allowed"] < 2 || z.Decisions["denied"] < 1 || z.Denied["r"] < 1 {
			t.Errorf("%+v", z)
		}
		if (len(all.Stores) == 1) != (b.redis != nil) || all.Rules == nil || all.Rules.Source != "file" || len(all.Took) == 0 {
			t.Errorf("%+v", all)
		}
		s.apply(`{"zones": {"z": {"rules": [{"limit": 9, "window": "100h"}], "shadow": true}, "elsewhere": {}}}`)
		s.admin("GET", "zones", "", &all)
		if z := all.Zones[0]; z.Origin != "file" || z.Rules[0].Limit != 9 || !z.Shadow || all.Rules.Unknown[0] != "elsewhere" || all.Rules.Confirmed.IsZero() || time.Since(all.Rules.Since) > time.Minute {
			t.Errorf("%+v %+v", z, all.Rules)
		}
		s.rejected(`{"zones": {"z": 1}}`)
		s.admin("GET", "zones", "", &all)
		if all.Rules.Error != "/zones/z: 1: want an object" || all.Rules.ErrorSince.IsZero() {
			t.Errorf("%+v", all.Rules)
		}
	})
}
