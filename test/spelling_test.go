package test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

// raw sends a request with exactly this target and Host over HTTP/1.1 and returns the
// status. A client library would normalize them.
func (s *site) raw(method, target, host string) int {
	s.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		s.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", method, target, host); err != nil {
		s.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.Fatalf("%s %s of %s: %v", method, target, host, err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// pathSpellings are targets that Caddy's path matcher and its file server take for one
// resource.
var pathSpellings = []string{
	"/files/one", "//files/one", "/files//one", "/files/./one", "/./files/one", "/files/x/../one", "/x/../files/one", "/../files/one",
	"/Files/one", "/files/ONE", "/files/%6fne", "/files/%6F%6E%65", "/%66iles/one", "/files%2Fone", "/files%2fone", "/files/%2e/one",
	"/files/x/%2e%2e/one", "/x/%2E./files/one", "///files///one", "/files/.//./one", "/x/y/../../files/one", "/FILES/%4FNE",
	"/files/one/.", "/files/one/x/..", "/files/one?a=1", "/files/one?", "/files/one?b", "http://example.com/files/one", "http://example.com//files/./one",
}

// hostSpellings are Host headers of one site.
var hostSpellings = []string{"example.com", "EXAMPLE.com", "example.com.", "Example.Com.", "example.com:80", "example.com.:8080"}

// TestKeysCountSpellingsAsOne checks that a key of the path or of the host counts all
// spellings that Caddy's matchers take for one as one, alone and beside other text.
func TestKeysCountSpellingsAsOne(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for n, c := range []struct {
			key     string
			targets []string
			hosts   []string
		}{
			{"{path}", pathSpellings, nil},
			{"{http.request.uri.path}", pathSpellings, nil},
			{"{orig_path}", pathSpellings, nil},
			{"{method}{path}", pathSpellings, nil},
			{"{host}:{path}", pathSpellings, hostSpellings},
			{"{client_ip} {path}", pathSpellings, nil},
			{"{path.0} {path.1}", pathSpellings, nil},
			{"{dir}{file}", pathSpellings, nil},
			{"{orig_dir} {orig_file}", pathSpellings, nil},
			{"{http.request.orig_uri.path.1}", pathSpellings, nil},
			{"{file.base}", pathSpellings, nil},
			{"{host}", []string{"/"}, hostSpellings},
			{"{hostport}", []string{"/"}, hostSpellings[:4]},
			{"{header.Host}", []string{"/"}, hostSpellings[:4]},
			{"{labels.1}", []string{"/"}, hostSpellings},
			{"{labels.0}{path}", pathSpellings, hostSpellings},
		} {
			t.Run(c.key, func(t *testing.T) {
				s := serve(t, setup{app: b.app(), site: `
					rate_limit {
						zone api` + strconv.Itoa(n) + ` {
							key ` + c.key + `
							rule 2/1h
						}
					}
					respond ok`})
				served, sent := 0, 0
				for range 2 {
					for i, target := range c.targets {
						for _, host := range append(c.hosts, "example.com")[:max(1, len(c.hosts))] {
							if sent++; s.raw("GET", target, host) == 200 {
								served++
							} else if i == 0 && sent <= 2 {
								t.Fatalf("request %d was denied", sent)
							}
						}
					}
				}
				if served != 2 {
					t.Errorf("%d of %d served, want 2", served, sent)
				}
			})
		}
	})
}

// TestKeysOfDifferentPaths checks that what Caddy's path matcher tells apart counts
// apart.
func TestKeysOfDifferentPaths(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone api {
				key {path}
				rule 1/1h
			}
		}
		respond ok`})
	for _, target := range []string{
		"/", "/files", "/files/", "/files/one", "/files/one/", "/files/one/two", "/files/%256fne", "/files/one%20", "/files/one.", "/files/one;a",
		"/files/one%00", "/files/on%C3%A9", "/files/one%23", "/files/%C4%E3", "/files/%BA%C3", "/files%5Cone",
	} {
		for i, want := range []int{200, 429} {
			if got := s.raw("GET", target, "example.com"); got != want {
				t.Errorf("request %d of %s: %d, want %d", i+1, target, got, want)
			}
		}
	}
}

// TestEmptyPathIsRoot checks that a request target without a path counts as /.
func TestEmptyPathIsRoot(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone api {
				key {path}
				key_missing skip
				rule 1/1h
			}
		}
		respond ok`})
	for i, target := range []string{"/", "http://example.com", "http://example.com/", "http://example.com?a", "/."} {
		if got := s.raw("GET", target, "example.com"); (got == 200) != (i == 0) {
			t.Errorf("%s: %d", target, got)
		}
	}
}

// TestOverrideOfSpellings checks that an override applies to all spellings of its path,
// however its own is written.
func TestOverrideOfSpellings(t *testing.T) {
	for n, c := range []struct{ key, override string }{
		{"{path}", "/res/vip"},
		{"{path}", "//Res/./VIP"},
		{"{method}{path}", "GET/res/vip"},
		{"{method}{path}", "GET/Res//vip"},
		{`"{method} {path}"`, `"GET /res/x/../VIP"`},
		{`"{host} {path}"`, `"EXAMPLE.com. /res/vip"`},
		{`{host}{path}`, `Example.com//res/vip`},
		{`"v1 {path.0} {path.1}"`, `"v1 res vip"`},
		{"{path.0} {path.1}", "RES Vip"},
		{"{path.0}/{path.1}", "Res/VIP"},
		{"{dir} {file}", "//RES/ VIP"},
		{"{host} {path}", "EXAMPLE.COM. /RES/vip"},
		{"{header.None}{path}", "/res/vip"}, // as it counts: where a header ends is not known
	} {
		for _, rule := range []string{"rule 0/1h", "unlimited"} {
			s := serve(t, setup{site: `
				rate_limit {
					zone api` + strconv.Itoa(n) + rule[:4] + ` {
						key ` + c.key + `
						rule 1/1h
						override ` + c.override + ` ` + strings.Replace(rule, "rule 0/1h", "{\nrule 0/1h\n}", 1) + `
					}
				}
				respond ok`})
			want := 429
			if rule == "unlimited" {
				want = 200
			}
			for _, target := range []string{"/res/vip", "/res//vip", "/res/VIP", "/x/../res/%76ip", "/RES/./vip"} {
				for range 2 {
					if got := s.raw("GET", target, "example.com"); got != want {
						t.Errorf("key %s, override %s %s: %s: %d, want %d", c.key, c.override, rule, target, got, want)
					}
				}
			}
			if got := s.raw("GET", "/res/other", "example.com"); got != 200 {
				t.Errorf("key %s, override %s %s: another path: %d", c.key, c.override, rule, got)
			}
		}
	}
}

// TestKeyOfAnySpelling checks that the admin API finds a key by any spelling, and that
// explain says how it counts.
func TestKeyOfAnySpelling(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone api {
					key {host} {path} "{method} {path}"
					rule 5/1h
				}
			}
			respond ok`})
		s.raw("GET", "/Files//%6fne", "EXAMPLE.com.")
		for _, parts := range [][]string{
			{"example.com", "/files/one", "GET /files/one"},
			{"Example.com.", "//FILES/./one", "GET /Files//one"},
		} {
			if k := s.key("GET", "api", parts...); k.Rules[0].Remaining != 4 {
				t.Errorf("%q: %d remaining, want 4", parts, k.Rules[0].Remaining)
			}
		}
		var e cli.Explanation
		if status, text := s.admin("POST", "explain", `{"url": "http://EXAMPLE.com/Files/./one", "client_ip": "10.0.0.1"}`, &e); status != 200 {
			t.Fatal(text)
		}
		z := e.Handlers[0].Zones[0]
		if got, want := fmt.Sprintf("%q", z.Parts), `["example.com" "/files/one" "GET /files/one"]`; got != want || z.Rules[0].Remaining != 4 {
			t.Errorf("explain: %s, %d remaining, want %s and 4", got, z.Rules[0].Remaining, want)
		}
		s.key("DELETE", "api", "EXAMPLE.COM", "/FILES/one", "GET /FILES/one")
		if k := s.key("GET", "api", "example.com", "/files/one", "GET /files/one"); k.Rules[0].Remaining != 5 {
			t.Errorf("%d remaining after the reset, want 5", k.Rules[0].Remaining)
		}
	})
}
