package test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// live returns a live message.
func (s *site) live(query string) (m cli.Live) {
	s.Helper()
	if status, text := s.admin("GET", "live?once&"+query, "", &m); status != 200 {
		s.Fatal(text)
	}
	return m
}

// TestLiveSendsWhatIsNew checks that a reader gets all zones, and then no more until one changes.
func TestLiveSendsWhatIsNew(t *testing.T) {
	s := serve(t, setup{site: "rate_limit {\nzone a {\nrule 5/1h name r\n}\nzone b {\nkey {query.k}\nrule 7/1h\n}\n}\nrespond ok"})
	s.want(req{ip: "192.0.2.1"}, 200)
	m := s.live("")
	begins := func(k history.Mark) bool { return k.Kind == history.MarkStarted || k.Kind == history.MarkReload }
	if len(m.Zones) != 2 || len(m.Blocked) != 0 || m.Version == "" || m.Open != nil || m.ReadOnly || !slices.ContainsFunc(m.Marks, begins) { // other tests leave other marks
		t.Errorf("%+v", m)
	}
	if i := m.Instance; i.Caddy == "" || i.Diana == "" || len(i.Config) != 8 || i.Since.IsZero() || i.Started.After(i.Since) {
		t.Errorf("%+v", i)
	}
	if a := m.Zones[0]; a.Name != "a" || string(a.Rules[0].Config) != `{"name":"r","limit":5,"window":3600000000000}` || a.LogKey || a.IPv4 != 32 || a.IPv6 != 64 || a.Decisions != nil {
		t.Errorf("%+v", a)
	}
	if m := s.live("have=" + m.Version); m.Zones != nil {
		t.Errorf("zones that the reader has: %+v", m)
	}
	open := s.live("have=" + m.Version + "&open=a").Open
	if open == nil || open.Decisions["allowed"] != 1 || open.Keys != 1 || open.Top.Zone != "a" {
		t.Errorf("%+v", open)
	}
	if m := s.live("open=none"); m.Open != nil {
		t.Errorf("%+v", m.Open)
	}
	if status, text := s.admin("GET", "live?since=x", "", nil); status != 400 || !strings.Contains(text, "since") {
		t.Errorf("status %d: %s", status, text)
	}
	if status, _ := s.admin("POST", "live", "{}", nil); status != 405 {
		t.Errorf("status %d", status)
	}
}

// TestLiveZonesAreInOrder checks that zones come in the order of their names, whatever the order of
// the servers and directives that have them.
func TestLiveZonesAreInOrder(t *testing.T) {
	zone := func(name string) string { return "zone " + name + " {\nrule 5/1h\n}\n" }
	s := serve(t, setup{
		site: "rate_limit {\n" + zone("c") + zone("a") + "}\nrespond ok",
		more: "http://:8002 {\nrate_limit {\n" + zone("b") + "}\nrespond ok\n}",
	})
	m := s.live("")
	var names []string
	for _, z := range m.Zones {
		names = append(names, z.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("zones %q, want a, b and c", names)
	}
}

// TestConfigHash checks that instances with equal rate limits have equal hashes, and that a
// password is not in them.
func TestConfigHash(t *testing.T) {
	hash := func(c setup) string {
		t.Helper()
		s := newSite(t)
		if err := s.load(c); err != nil {
			t.Fatal(err)
		}
		return s.zones().Instance.Config
	}
	store := func(password, prefix string) string {
		return "store redis 127.0.0.1:1 {\npassword " + password + "\nkey_prefix " + prefix + "\n}"
	}
	first := hash(setup{site: zoneSite("5/1h")})
	if again := hash(setup{site: zoneSite("5/1h")}); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	seen := map[string]string{first: "5/1h"}
	for name, c := range map[string]setup{
		"another limit": {site: zoneSite("6/1h")}, "another option": {site: zoneSite("5/1h"), app: "max_keys 7"},
		"a matcher": {site: zoneSite("5/1h\nmatch path /x")}, "a store": {site: zoneSite("5/1h"), app: store("a", "p")},
		"another prefix": {site: zoneSite("5/1h"), app: store("a", "q")},
		"a master":       {site: zoneSite("5/1h"), app: "store redis 127.0.0.1:1 {\nsentinel one\n}"},
		"another master": {site: zoneSite("5/1h"), app: "store redis 127.0.0.1:1 {\nsentinel two\n}"},
		"a URL":          {site: zoneSite("5/1h"), app: "rules http http://127.0.0.1:1/a"},
		"another URL":    {site: zoneSite("5/1h"), app: "rules http http://127.0.0.1:1/b?token=c"},
	} {
		h := hash(c)
		if other, ok := seen[h]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[h] = name
	}
	if a, b := hash(setup{site: zoneSite("5/1h"), app: store("a", "p")}), hash(setup{site: zoneSite("5/1h"), app: store("b", "p")}); a != b {
		t.Error("the hash depends on the password")
	}
	if h := hash(setup{site: zoneSite("5/1h"), app: "rules http http://127.0.0.1:1/b?token=d"}); seen[h] != "another URL" {
		t.Error("the hash depends on the query of a URL")
	}
}

func zoneSite(rule string) string {
	return "rate_limit {\nzone z {\nrule " + rule + "\n}\n}\nrespond ok"
}

// TestEnforcedShareIsShown checks that, while Redis is away, the API has the limits that this
// instance enforces, beside those that are configured.
func TestEnforcedShareIsShown(t *testing.T) {
	r := redistest.Start(t)
	s := serve(t, setup{
		app:  "store redis " + r.Addr + " {\nfallback_share 0.33\ntimeout 1s\n}",
		site: "rate_limit {\nzone z {\nrule 200/1m\nin_flight 10\n}\n}\nrespond ok",
	})
	until(t, "shared counts", func() bool {
		s.send(req{ip: "192.0.2.1"})
		all := s.zones()
		return all.Stores[0].Up && all.Stores[0].Calls > 0 && all.Stores[0].Checks >= all.Stores[0].Calls && all.Stores[0].CallSeconds > 0
	})
	if z := s.zones().Zones[0]; z.Rules[0].Enforced != 0 || z.Alone != 0 {
		t.Errorf("while limits are shared: %+v", z)
	}
	r.Kill()
	until(t, "the share to be shown", func() bool {
		s.send(req{ip: "192.0.2.1"})
		all := s.zones()
		z := all.Zones[0]
		return !all.Stores[0].Up && z.Rules[0].Limit == 200 && z.Rules[0].Enforced == 66 && z.InFlight == 10 && z.Alone == 3 && all.Stores[0].Share > 0.32 && all.Stores[0].Share < 0.34
	})
	marks := s.live("").Marks
	if last := marks[len(marks)-1]; last.Kind != "down" || last.Name != "redis" {
		t.Errorf("%+v", marks)
	}
}

var noRedirects = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// TestPageHandler checks the handler rate_limit_page: what it answers, that it is read-only,
// and that it is ordered behind authentication.
func TestPageHandler(t *testing.T) {
	s := serve(t, setup{site: `rate_limit_page /limits*
	handle_path /deep/er/* {
		rate_limit_page
	}
	basic_auth /private* {
		u $2a$14$a8FK9rGDthsefNF8LiEZ7uOFYy8wOllKpoCaY4jpx0IxcCoQtJgHK
	}
	rate_limit_page /private*
	@site not path /limits* /private* /deep*
	rate_limit @site {query.k} 1/1h {
		name z
	}
	respond ok`})
	s.want(req{path: "/?k=a"}, 200, 429)
	do := func(method, path string) (*http.Response, string) {
		t.Helper()
		resp, err := noRedirects.Do(req{method: method, path: path}.http(s))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	for path, want := range map[string]struct {
		status int
		part   string
	}{
		"/limits/":                   {200, "<title>Rate limits</title>"},
		"/deep/er/":                  {200, "<title>Rate limits</title>"},
		"/limits":                    {308, ""},
		"/limits/else":               {308, ""},
		"/limits/live?once":          {200, `"read_only":true`},
		"/limits/zones":              {200, `"name": "z"`},
		"/deep/er/zones":             {200, `"name": "z"`},
		"/limits/keys?part=a":        {200, `"zones"`},
		"/limits/history":            {200, `"step":2`},
		"/limits/zones/z/top":        {200, `"busiest"`},
		"/limits/zones/z/key?part=a": {200, `"decision": "denied"`},
		"/limits/zones/z/spend":      {404, "want group_by"},
		"/limits/zones/none/top":     {404, `{"error":"zone \"none\": there is none of this name; there are `},
		"/private/":                  {401, ""},
	} {
		resp, body := do("GET", path)
		if resp.StatusCode != want.status || !strings.Contains(body, want.part) {
			t.Errorf("%s: %d %.200s, want %d with %s", path, resp.StatusCode, body, want.status, want.part)
		}
	}
	if resp, _ := do("GET", "/limits"); resp.Header.Get("Location") != "./limits/" {
		t.Errorf("Location %q", resp.Header.Get("Location"))
	}
	if resp, _ := do("GET", "/limits/"); !strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'sha256-") || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", resp.Header)
	}
	for _, method := range []string{"DELETE", "PUT", "POST"} {
		for _, path := range []string{"/limits/zones/z/key?part=a", "/limits/", "/limits/zones", "/limits/live"} {
			if resp, body := do(method, path); resp.StatusCode != 405 || !strings.Contains(body, `"error"`) {
				t.Errorf("%s %s: %d %s", method, path, resp.StatusCode, body)
			}
		}
	}
	s.want(req{path: "/?k=a"}, 429)
	for _, rules := range []string{"/limits/rules", "/limits/rules/validate"} {
		if resp, _ := do("PUT", rules); resp.StatusCode < 300 || resp.StatusCode == 422 {
			t.Errorf("PUT %s: %d", rules, resp.StatusCode)
		}
	}
}

// TestStreamsAreBoundedEach opens all streams of a site's page, which takes none from another page
// and none from the admin endpoint.
func TestStreamsAreBoundedEach(t *testing.T) {
	s := serve(t, setup{site: "rate_limit_page /a/*\nrate_limit_page /b/*\nrespond ok"})
	open := func(path string) int {
		t.Helper()
		resp, err := s.client.Do(req{path: path}.http(s))
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 200 {
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if _, err := io.ReadFull(resp.Body, make([]byte, len("data: "))); err != nil {
			t.Fatal(err)
		}
		return 200
	}
	for i := range 101 {
		if got, want := open("/a/live"), map[bool]int{true: 200, false: 503}[i < 100]; got != want {
			t.Fatalf("stream %d: status %d, want %d", i+1, got, want)
		}
	}
	if got := open("/b/live"); got != 200 {
		t.Errorf("the other page: status %d", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it ends after its first message
	w := httptest.NewRecorder()
	err := adminAPI(t).ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "http://localhost:2019/rate_limit/live", http.NoBody))
	if err != nil || !strings.HasPrefix(w.Body.String(), "data: ") {
		t.Errorf("the admin endpoint: %v %d %.100s", err, w.Code, w.Body)
	}
}

// TestLiveHasClientsApart checks that what a client does has no zones sent again, and that a
// reader is told of those that a reload removed, also of the last ones.
func TestLiveHasClientsApart(t *testing.T) {
	s := serve(t, setup{site: "rate_limit {\nzone a {\nrule 5/1h\n}\nzone b {\nrule 1/1h block 1h\n}\n}\nrespond ok"})
	first := s.live("")
	s.want(req{}, 200, 429)
	until(t, "the key to be shown as blocked", func() bool {
		m := s.live("have=" + first.Version)
		return maps.Equal(m.Blocked, map[string]int64{"b": 1}) && m.Zones == nil && m.Version == first.Version
	})
	for names, site := range map[string]string{"[a]": "rate_limit {\nzone a {\nrule 5/1h\n}\n}\nrespond ok", "[]": "rate_limit_page /x/*\nrespond ok"} {
		if err := s.load(setup{site: site}); err != nil {
			t.Fatal(err)
		}
		got := []string{}
		m := s.live("have=" + first.Version)
		for _, z := range m.Zones {
			got = append(got, z.Name)
		}
		if fmt.Sprint(got) != names || m.Zones == nil || m.Version == first.Version {
			t.Errorf("zones %v, want %s: %+v", got, names, m)
		}
	}
}
