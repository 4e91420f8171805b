package test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// asWritten matches the directive and the global option at the beginning of a line.
var asWritten = regexp.MustCompile(`(?m)^(\s*)rate_limit(\s|$)`)

// named returns a Caddyfile with the other name of directive and global option.
func named(text string) string { return asWritten.ReplaceAllString(text, "${1}diana$2") }

// TestOtherName adapts each golden Caddyfile under the other name: the JSON is the same but for the name,
// and errors name the directive as it is written.
func TestOtherName(t *testing.T) {
	handler, app := regexp.MustCompile(`"handler": "rate_limit"`), regexp.MustCompile(`(?m)^(\t\t)"rate_limit": \{`)
	misnamed := regexp.MustCompile(`: rate_limit(:| is given)`)
	n := 0
	for file, g := range goldens(t) {
		text := named(g[0])
		if text == g[0] || strings.Contains(g[0], "order rate_limit") {
			continue
		}
		b, err := adapt(t, text)
		if bad := strings.HasPrefix(filepath.Base(file), "bad_"); bad != (err != nil) {
			t.Errorf("%s: error %v, want an error: %v", file, err, bad)
			continue
		}
		if err != nil {
			if strings.Contains(err.Error(), "for 'rate_limit'") || misnamed.MatchString(err.Error()) {
				t.Errorf("%s: the error names another directive: %v", file, err)
			}
			continue
		}
		want := app.ReplaceAllString(handler.ReplaceAllString(g[1], `"handler": "diana"`), `$1"diana": {`)
		if got := indent(t, b); canonical(t, []byte(got)) != canonical(t, []byte(want)) {
			t.Errorf("%s: got:\n%s\nwant:\n%s", file, got, want)
		}
		n++
	}
	if n < 50 {
		t.Errorf("only %d were adapted", n)
	}
}

// TestNamesAreOneThing serves configurations in which app and handlers have unlike names, with one Redis.
func TestNamesAreOneThing(t *testing.T) {
	r := redistest.Start(t)
	for _, names := range [][2]string{{"diana", "rate_limit"}, {"rate_limit", "diana"}, {"diana", "diana"}} {
		s := newSite(t)
		text := setup{app: redisStore(r.Addr, "timeout 10s"), site: "rate_limit {client_ip} 2/100h {\n name " + names[0] + names[1] + "\n }"}.caddyfile(s)
		text = strings.Replace(text, "\n\trate_limit {\n", "\n\t"+names[0]+" {\n", 1)
		text = strings.Replace(text, "\n\trate_limit {client_ip}", "\n\t"+names[1]+" {client_ip}", 1)
		b, err := adapt(t, text)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.loadJSON(b); err != nil {
			t.Fatal(err)
		}
		s.want(req{}, 200, 200, 429)
		if z := s.zones(); len(z.Stores) != 1 || !z.Stores[0].Up || len(z.Zones) != 1 {
			t.Errorf("%v: %+v", names, z)
		}
		if err := caddy.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBothNames checks the errors of a configuration in which the app has both names.
func TestBothNames(t *testing.T) {
	s := newSite(t)
	_, err := adapt(t, setup{global: "diana {\n max_keys 5\n }", site: "diana {client_ip} 2/s"}.caddyfile(s))
	if err == nil || !strings.Contains(err.Error(), "rate_limit and diana are both given among the global options") {
		t.Errorf("both global options: %v", err)
	}
	err = caddy.Load([]byte(`{"admin":{"disabled":true},"apps":{"diana":{},"rate_limit":{}}}`), true)
	if err == nil || !strings.Contains(err.Error(), "rate_limit and diana are two names of one app") {
		t.Errorf("both apps: %v", err)
	}
}
