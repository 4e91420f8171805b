package test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"

	"github.com/dianalimiter/diana"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/autoname"
	"github.com/dianalimiter/diana/internal/configure/compat"
	"github.com/dianalimiter/diana/internal/usage/settle"
)

// The golden files have Caddy's format: a Caddyfile, a line of ten dashes, and
// the JSON it adapts to, or the error. Files named bad_* hold errors. With
// UPDATE_GOLDENS=1 the tests rewrite them.
const goldenRule = "\n----------\n"

func goldens(t testing.TB) map[string][2]string {
	t.Helper()
	files, err := filepath.Glob("testdata/caddyfile/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	all := make(map[string][2]string)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		in, want, _ := strings.Cut(string(b), goldenRule)
		all[f] = [2]string{in + "\n", strings.TrimSpace(want)}
	}
	return all
}

func adapt(t testing.TB, in string) ([]byte, error) {
	t.Helper()
	b, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(in), nil)
	return b, err
}

var position = regexp.MustCompile(`Caddyfile:\d+`)

func TestCaddyfileGoldens(t *testing.T) {
	for file, g := range goldens(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".caddyfiletest")
		t.Run(name, func(t *testing.T) {
			b, err := adapt(t, g[0])
			if bad := strings.HasPrefix(name, "bad_"); bad != (err != nil) {
				t.Fatalf("error %v, want an error: %v", err, bad)
			}
			var got string
			if err != nil {
				got = strings.ReplaceAll(err.Error(), ", or test_ledger", "") // a store of these tests
				if !position.MatchString(got) {
					t.Errorf("no file and line in %q", got)
				}
			} else {
				checkAdapted(t, b)
				got = indent(t, b)
			}
			if got != g[1] && os.Getenv("UPDATE_GOLDENS") != "" {
				err := os.WriteFile(file, []byte(strings.TrimRight(g[0], "\n")+goldenRule+got+"\n"), 0o600)
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != g[1] {
				t.Errorf("got:\n%s\nwant:\n%s", got, g[1])
			}
		})
	}
}

func indent(t testing.TB, b []byte) string {
	t.Helper()
	var buf bytes.Buffer
	if err := json.Indent(&buf, b, "", "\t"); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// checkAdapted decodes adapted JSON as strictly as Caddy does and checks that
// no field is unknown, lost or rejected.
func checkAdapted(t testing.TB, b []byte) {
	t.Helper()
	var cfg struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(b, &cfg); err != nil {
		t.Fatal(err)
	}
	if raw := cfg.Apps["rate_limit"]; raw != nil {
		roundTrip(t, raw, new(diana.App))
	}
	for _, raw := range handlersIn(t, cfg.Apps["http"]) {
		h := new(diana.Handler)
		roundTrip(t, raw, h)
		for name, z := range h.RateLimits {
			named := *z
			named.Name = autoname.Safe(name)
			if err := checkZone(&named); err != nil {
				t.Errorf("zone %s: %v", name, err)
			}
		}
		for _, z := range h.Zones {
			if err := checkZone(z); err != nil {
				t.Errorf("zone %s: %v", z.Name, err)
			}
		}
	}
}

// checkZone checks a zone, after expanding the options of other plugins.
func checkZone(z *config.Zone) error {
	native, err := compat.Normalize(z)
	if err == nil {
		_, err = native.Check(settle.Responses{})
	}
	return err
}

func roundTrip(t testing.TB, raw json.RawMessage, v any) {
	t.Helper()
	if err := caddy.StrictUnmarshalJSON(raw, v); err != nil {
		t.Errorf("%v in %s", err, raw)
	}
	again, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if canonical(t, again) != canonical(t, raw) {
		t.Errorf("%s is read as %s", raw, again)
	}
}

func canonical(t testing.TB, b []byte) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// handlersIn returns the rate_limit handlers at any depth of a JSON document.
func handlersIn(t testing.TB, b json.RawMessage) (found []json.RawMessage) {
	t.Helper()
	var list []json.RawMessage
	if json.Unmarshal(b, &list) == nil {
		for _, v := range list {
			found = append(found, handlersIn(t, v)...)
		}
		return found
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(b, &fields) != nil {
		return nil
	}
	if string(fields["handler"]) == `"rate_limit"` {
		delete(fields, "handler")
		raw, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return []json.RawMessage{raw}
	}
	for _, v := range fields {
		found = append(found, handlersIn(t, v)...)
	}
	return found
}

// TestCaddyfileGoldensLoad checks that every adapted golden file provisions, except
// those whose stores need files.
func TestCaddyfileGoldensLoad(t *testing.T) {
	for _, name := range []string{"PASSWORD", "REDIS_PASSWORD", "SENTINEL_PASSWORD"} {
		t.Setenv(name, "secret")
	}
	t.Setenv("RULES_REDIS", "redis://localhost:6379")
	t.Setenv("RULES_TOKEN", "secret")
	t.Setenv("MODE", "allow")
	t.Setenv("EXEMPT", "192.0.2.9")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for file, g := range goldens(t) {
		if strings.HasPrefix(filepath.Base(file), "bad_") || strings.Contains(g[0], "/etc/") {
			continue
		}
		b, err := adapt(t, g[0])
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var config caddy.Config
		if err := caddy.StrictUnmarshalJSON(b, &config); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if err := caddy.Validate(&config); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// namesOf adapts a site with the given lines and returns its zone names.
func namesOf(t *testing.T, lines ...string) (names []string) {
	t.Helper()
	b, err := adapt(t, ":8080 {\n"+strings.Join(lines, "\n")+"\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range handlersIn(t, b) {
		h := new(diana.Handler)
		roundTrip(t, raw, h)
		for _, z := range h.Zones {
			names = append(names, z.Name)
		}
	}
	return names
}

func TestCaddyfileAutoNames(t *testing.T) {
	const line = "rate_limit {client_ip} 10/s"
	first := namesOf(t, line)[0]
	if !regexp.MustCompile(`^auto-[0-9a-f]{8}$`).MatchString(first) {
		t.Errorf("name %q", first)
	}
	for _, same := range []string{
		"rate_limit 10/s",
		"rate_limit {http.vars.client_ip} 10r/1s",
		"rate_limit 10/s {\n\tshadow\n\tlog_key\n}",
		"rate_limit {client_ip} 11/s", // a limit that is changed keeps its counts
		"rate_limit {client_ip} 100/1h gcra burst 5",
		"rate_limit {client_ip} 10/s name a", // of the rule
	} {
		if got := namesOf(t, "respond hello", same)[0]; got != first {
			t.Errorf("%s: name %s, want %s", same, got, first)
		}
	}
	for _, other := range []string{
		"rate_limit {path} 10/s",
		"rate_limit /api/* {client_ip} 10/s",
		"rate_limit {client_ip} 10/s {\n\tmatch path /a\n}",
	} {
		if got := namesOf(t, other)[0]; got == first {
			t.Errorf("%s: same name as %s, want another", other, line)
		}
	}
	got := namesOf(t, line, "handle /a {\n"+line+"\n}", line)
	if want := []string{first, first + "-2", first + "-3"}; !sameSet(got, want) {
		t.Errorf("three equal directives: names %v, want %v", got, want)
	}
}

// TestAutoNameInNamedRoutes loads a snippet with two rates in two named routes: they are two zones.
func TestAutoNameInNamedRoutes(t *testing.T) {
	adapted, err := adapt(t, `
(limited) {
	rate_limit {client_ip} {args[0]}
}
&(slow) {
	import limited 10/s
}
&(fast) {
	import limited 20/s
}
http://:8001 {
	invoke slow
	invoke fast
}
`)
	if err != nil {
		t.Fatal(err)
	}
	var config caddy.Config
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&config); err != nil {
		t.Error(err)
	}
}

// TestAutoNameKeepsCounts reloads a limit on one line with a higher rate: what was counted stays.
func TestAutoNameKeepsCounts(t *testing.T) {
	s := serve(t, setup{site: "rate_limit {client_ip} 2/1h\nrespond ok"})
	for range 2 {
		s.send(req{})
	}
	s.reload(setup{site: "rate_limit {client_ip} 3/1h\nrespond ok"})
	if a, b := s.send(req{}).status, s.send(req{}).status; a != http.StatusOK || b != http.StatusTooManyRequests {
		t.Errorf("after 2 of 3: %d and %d, want 200 and 429", a, b)
	}
}

// TestCaddyfileSnippetNames checks that a directive in a snippet is one zone,
// however often the snippet is imported.
func TestCaddyfileSnippetNames(t *testing.T) {
	b, err := adapt(t, `
(limited) {
	rate_limit {client_ip} {args[0]}
}
:8080 {
	import limited 10/s
}
:8081 {
	import limited 10/s
}
:8082 {
	import limited 20/s
}
&(shared) {
	rate_limit {client_ip} 10/s
}
:8083 {
	invoke shared
}
`)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]int)
	for _, raw := range handlersIn(t, b) {
		h := new(diana.Handler)
		roundTrip(t, raw, h)
		names[h.Zones[0].Name]++
	}
	if len(names) != 3 {
		t.Errorf("names %v: want three, one of them twice", names)
	}
}

func sameSet(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	n := make(map[string]int)
	for i := range a {
		n[a[i]]++
		n[b[i]]--
	}
	for _, v := range n {
		if v != 0 {
			return false
		}
	}
	return true
}

// TestOptionsInAnyOrder adapts a zone whose options depend on each other, with its lines forwards
// and backwards.
func TestOptionsInAnyOrder(t *testing.T) {
	for _, lines := range []string{
		"key {body.user} {path}|key_missing deny|override a /b unlimited|rule 100/1m|settle {response.body.cost}|cost 5|hold|group_by {header.X-Team}|unit points|count_status 200",
		"ipv4_prefix 24|override 192.0.2.0/24 unlimited|rule 100/1m leaky_bucket|max_wait 1s|max_waiting 5|in_flight 5|linger 5s",
		"tokens|group_by {body.model}|max_body 1MiB|rule 1000/1m|algorithm gcra",
	} {
		options := strings.Split(lines, "|")
		var adapted [2]string
		for i := range adapted {
			b, err := adapt(t, ":8080 {\nrate_limit {\nzone z {\n"+strings.Join(options, "\n")+"\n}\n}\n}")
			if err != nil {
				t.Errorf("%v: %v", options, err)
			}
			adapted[i] = string(b)
			slices.Reverse(options)
		}
		if adapted[0] != adapted[1] {
			t.Errorf("%v: %s, and backwards %s", options, adapted[0], adapted[1])
		}
	}
}

// TestCaddyfileErrorsShowNoSecret checks that the error about an invalid line does
// not show the line's password.
func TestCaddyfileErrorsShowNoSecret(t *testing.T) {
	const secret = "canary"
	for _, line := range []string{
		"store redis localhost {\n password " + secret + " " + secret + "\n}",
		"store redis localhost {\n password x\n password " + secret + "\n}",
		"store redis localhost {\n key_secret x " + secret + "\n}",
		"store rediss://u:" + secret + "@localhost:6379",
		"store redis rediss://u:" + secret + "@localhost:port",
		"store redis rediss://u:" + secret + "@localhost rediss://u:" + secret + "@localhost",
		"store redis localhost {\n sentinel m {\n password a " + secret + "\n}\n}",
	} {
		_, err := adapt(t, "{\nrate_limit {\n"+line+"\n}\n}\n:8080\n")
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
