package test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/configure/compat"
	"github.com/dianalimiter/diana/internal/key"
)

const identityDoc = "docs/internals/identity.md"

// identity is a row of the table in docs/internals/identity.md.
type identity struct {
	line                                       int
	what, proxies, from, request, zone, wanted string
}

// settings identifies the configuration that rows share.
func (c identity) settings() string { return c.proxies + "|" + c.from + "|" + c.zone }

func identities(t *testing.T, lines []string) (list []identity) {
	t.Helper()
	in := false
	for i, line := range lines {
		switch {
		case line == "<!-- identity -->":
			in = true
		case line == "<!-- end -->":
			in = false
		case in && strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| | "):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			if len(cells) != 6 {
				t.Fatalf("%d cells in %s", len(cells), line)
			}
			for j := range cells {
				cells[j] = strings.TrimSpace(cells[j])
			}
			list = append(list, identity{i, cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]})
		}
	}
	return list
}

// TestIdentityTable sends the request of each row of the table in docs/internals/identity.md
// to a Caddy with the row's settings. The identity is decoded from the key that the
// zone builds for that request and confirmed by the response: a request passes if
// it is the first with that identity under its settings. With UPDATE_GOLDENS=1 the
// last column is rewritten.
func TestIdentityTable(t *testing.T) {
	lines := strings.Split(textOf(t, identityDoc), "\n")
	list := identities(t, lines)
	if len(list) < 30 {
		t.Fatalf("%d lines, want 30 at the least", len(list))
	}
	groups := make(map[string][]identity)
	for _, c := range list {
		groups[c.settings()] = append(groups[c.settings()], c)
	}
	for name, group := range groups {
		t.Run(name, func(t *testing.T) {
			r := newIdentityRun(t, group[0])
			seen := make(map[string]bool)
			for _, c := range group {
				got := r.describe(c)
				if os.Getenv("UPDATE_GOLDENS") != "" {
					cells := strings.Split(lines[c.line], "|")
					cells[6] = " " + got + " "
					lines[c.line] = strings.Join(cells, "|")
				} else if got != c.wanted {
					t.Errorf("%s: counted as %s, want %s", c.what, got, c.wanted)
				}
				want := http.StatusOK
				if seen[got] || got == "denied" {
					want = http.StatusTooManyRequests
				}
				seen[got] = got != "uncounted"
				if status := r.send(c, "/"); status != want {
					t.Errorf("%s: status %d, want %d", c.what, status, want)
				}
			}
		})
	}
	t.Logf("%d cases under %d settings", len(list), len(groups))
	if os.Getenv("UPDATE_GOLDENS") != "" {
		if err := os.WriteFile(filepath.Join(root, identityDoc), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// identityRun is a Caddy with the settings of a group of rows.
type identityRun struct {
	*testing.T
	client *http.Client
	url    string
	got    string // the identity of the last request to /describe
}

func newIdentityRun(t *testing.T, c identity) *identityRun {
	r := &identityRun{T: t, url: "http://site"}
	address := map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "unix": "unix/" + unixSocket(t)}[c.from]
	servers := ""
	if c.proxies == "unix" {
		servers = "servers {\ntrusted_proxies_unix\n}"
	} else if c.proxies != "none" {
		proxies, strict := strings.CutSuffix(c.proxies, " strict")
		servers = "servers {\ntrusted_proxies static " + proxies + "\n"
		if strict {
			servers += "trusted_proxies_strict\n"
		}
		servers += "}"
	}
	describe := handle(t, "/describe", func(_ http.ResponseWriter, req *http.Request) error {
		r.got = describeKey(t, runningPlan(t), req)
		return nil
	})
	adapted, err := adapt(t, fmt.Sprintf(`{
			admin off
			persist_config off
			storage file_system %s
			log default {
				output discard
			}
			%s
		}
		http://:8001 {
			%s
			rate_limit {
				zone z {
					match not path /describe
					rule 1/1h
					%s
				}
			}
			respond hello
		}`, t.TempDir(), servers, describe, strings.ReplaceAll(c.zone, "; ", "\n")))
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load([]byte(strings.Replace(string(adapted), `":8001"`, strconv.Quote(address), 1)), true); err != nil {
		t.Fatal(err)
	}
	l := runningServer(t).Listeners()[0].Addr()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, l.Network(), l.String())
	}}
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func runningServer(t *testing.T) *caddyhttp.Server {
	t.Helper()
	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		t.Fatal(err)
	}
	return app.(*caddyhttp.App).Servers["srv0"]
}

func runningPlan(t *testing.T) *key.Plan {
	t.Helper()
	z, err := compat.Normalize((&site{T: t}).handlers()[0].Zones[0])
	if err != nil {
		t.Fatal(err)
	}
	plan, err := z.KeyPlan()
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// send sends a row's request and returns the status.
func (r *identityRun) send(c identity, path string) int {
	r.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, r.url+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	for header := range strings.SplitSeq(c.request, ";") {
		if name, value, ok := strings.Cut(strings.TrimSpace(header), ":"); ok {
			req.Header.Add(name, strings.TrimSpace(value))
		}
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func (r *identityRun) describe(c identity) string {
	r.Helper()
	r.got = "nothing"
	r.send(c, "/describe")
	return r.got
}

// The encoding of a key: its kind, then each part as a tag and its bytes.
const (
	keyOfAddress = 1 // the address replaces the parts
	keyUnknown   = 2

	tagText  = 't'
	tagMixed = 'm'
	tagV4    = '4'
	tagV6    = '6'
)

// describeKey returns the identity that a request is counted by.
func describeKey(t *testing.T, plan *key.Plan, r *http.Request) string {
	var k key.Encoded
	switch state, _ := plan.Encode(&k, r); state {
	case key.Skipped:
		return "uncounted"
	case key.Rejected, key.Repeated:
		return "denied"
	}
	kind, rest := k.Bytes()[0], k.Bytes()[1:]
	switch kind {
	case keyUnknown:
		return "`unknown`"
	case keyOfAddress:
		part, _, err := describePart(plan, rest)
		if err != nil {
			t.Error(err)
		}
		return part + " instead of the key"
	}
	var parts []string
	for len(rest) > 0 {
		part, n, err := describePart(plan, rest)
		if err != nil {
			t.Error(err)
			break
		}
		parts, rest = append(parts, part), rest[n:]
	}
	return strings.Join(parts, ", ")
}

var errNoKey = errors.New("malformed key")

// describePart decodes the first part of an encoded key.
func describePart(p *key.Plan, b []byte) (part string, n int, err error) {
	switch {
	case b[0] == tagV4 && len(b) >= 5:
		return network(netip.AddrFrom4([4]byte(b[1:5])), p.V4), 5, nil
	case b[0] == tagV6 && len(b) >= 17:
		return network(netip.AddrFrom16([16]byte(b[1:17])), p.V6), 17, nil
	case b[0] == tagText:
		size, m := binary.Uvarint(b[1:])
		if end := 1 + m + int(size); m > 0 && end <= len(b) {
			return strconv.Quote(string(b[1+m : end])), end, nil
		}
	case b[0] == tagMixed && len(b) >= 5:
		if end := 5 + int(binary.BigEndian.Uint32(b[1:])); end <= len(b) {
			return strconv.Quote(string(b[5:end])), end, nil
		}
	}
	return "", 0, fmt.Errorf("%w: %q", errNoKey, b)
}

func network(a netip.Addr, bits int) string {
	if bits == a.BitLen() {
		return a.String()
	}
	return netip.PrefixFrom(a, bits).String()
}

// TestIdentityTableCanFail checks that a malformed key is an error and that the
// attacked address is an identity in the table, so that TestIdentityTable is able
// to fail.
func TestIdentityTableCanFail(t *testing.T) {
	for _, b := range []string{"4abc", "6abc", "t\x05ab", "m\x00\x00\x00\x09ab", "x", "t"} {
		if part, _, err := describePart(&key.Plan{V4: 32, V6: 64}, []byte(b)); err == nil {
			t.Errorf("malformed key %q: decoded as %s", b, part)
		}
	}
	if !regexp.MustCompile(`(?m)^\| .* \| 203\.0\.113\.7 \|$`).MatchString(textOf(t, identityDoc)) {
		t.Error("no row is counted as 203.0.113.7")
	}
}
