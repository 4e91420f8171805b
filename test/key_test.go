package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestKeyPartsAreSeparate uses lists of parts that would collide if they were
// concatenated.
func TestKeyPartsAreSeparate(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone api {
					key {query.a} {query.b} x{query.a}
					key_missing share
					rule 1/1h
				}
			}
			respond ok`})
		long := strings.Repeat("x", 5000)
		for _, c := range [][2]string{
			{"ab", "c"},
			{"a", "bc"},
			{"abc", ""},
			{"", "abc"},
			{"", ""},
			{"a,b", "c"},
			{"a", "b,c"},
			{"a|b", ""},
			{"a", "|b"},
			{`a"`, `"b`},
			{"t\x01a", ""},
			{"10.0.0.1", "a"},
			{"a", "10.0.0.1"},
			{long + "1", ""},
			{long + "2", ""},
			{long, "1"},
			{"A", "B"},
			{"a", "B"},
		} {
			s.want(req{path: "/?" + url.Values{"a": {c[0]}, "b": {c[1]}}.Encode()}, 200, 429)
		}
	})
}

func TestKeyMissing(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, missing := range []string{"client_ip", "share"} {
			t.Run(missing, func(t *testing.T) {
				s := serve(t, setup{app: b.app(), site: keyMissing(missing)})
				s.want(req{path: "/?b=b", ip: "10.0.0.1"}, 200, 429)
				if missing == "share" {
					s.want(req{path: "/?b=b", ip: "10.0.0.2"}, 429) // requests without the part share one key
				} else {
					s.want(req{path: "/?b=b", ip: "10.0.0.2"}, 200, 429)
					s.want(req{path: "/?a=a", ip: "10.0.0.2"}, 429) // whichever part is missing
				}
				// No value of a part is equal to a missing part.
				for _, v := range []string{"10.0.0.1", "client_ip", "unknown", "\x01", "\x01\x0a\x00\x00\x01", " "} {
					s.want(req{path: "/?b=b&a=" + url.QueryEscape(missing+v), ip: "10.0.0.1"}, 200, 429)
					s.want(req{path: "/?b=b&a=" + url.QueryEscape(v), ip: "10.0.0.1"}, 200, 429)
				}
			})
		}
		t.Run("skip", func(t *testing.T) {
			s := serve(t, setup{app: b.app(), site: keyMissing("skip")})
			a := s.want(req{}, 200, 200, 200)
			if a.body != "skipped" {
				t.Errorf("decision %q", a.body)
			}
			s.want(req{path: "/?a=skip&b=b"}, 200, 429)
		})
		t.Run("deny", func(t *testing.T) {
			s := serve(t, setup{app: b.app(), site: keyMissing("deny") + "\nhandle_errors {\nrespond {http.rate_limit.exceeded.rule}\n}"})
			a := s.want(req{}, 429, 429)
			s.wantNoHeader(a, "Retry-After")
			if a.body != "key_missing" {
				t.Errorf("rule %q", a.body)
			}
			s.want(req{path: "/?a=deny&b=b"}, 200, 429)
		})
	})
}

func keyMissing(what string) string {
	return `
		rate_limit {
			zone ` + what + ` {
				key {query.a} {query.b}
				key_missing ` + what + `
				rule 1/1h
			}
		}
		respond {http.rate_limit.` + what + `.decision}`
}

// TestKeyMissingOfOnePart checks that a request without the only part is counted by
// address, separately from a part whose value is that address.
func TestKeyMissingOfOnePart(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: "rate_limit {\nzone z {\nkey {query.a}\nrule 1/1h\n}\n}\nrespond ok"})
		for _, ip := range []string{"10.0.0.1", "2001:db8::1"} {
			s.want(req{ip: ip}, 200, 429)
			s.want(req{ip: ip, path: "/?a=" + ip}, 200, 429)
			s.want(req{ip: ip}, 429)
		}
	})
}

// TestKeyMissingWithoutAddress sends requests over a Unix socket, which has no
// client address.
func TestKeyMissingWithoutAddress(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		socket := unixSocket(t)
		s := serve(t, setup{app: b.app(), more: `
			http://:80 {
				bind unix/` + socket + `
				rate_limit {
					zone z {
						key {header.A}
						rule 2/1h
					}
				}
				respond ok
			}`})
		s.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", socket)
		}
		s.want(req{to: "http://x"}, 200, 200, 429)
		s.want(req{to: "http://x", header: map[string]string{"A": "a"}}, 200, 200, 429)
		s.want(req{to: "http://x"}, 429)
	})
}

// TestAddresses checks that different forms of one address are one client. Each
// inner list is one client.
func TestAddresses(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, c := range []struct {
			options string
			clients [][]string
		}{
			{"", [][]string{
				{"10.0.0.1", "::ffff:10.0.0.1", "::FFFF:0a00:0001", "0:0:0:0:0:ffff:10.0.0.1", "::ffff:10.0.0.1%eth0"},
				{"10.0.0.2", "::ffff:10.0.0.2"},
				{"2001:db8::1", "2001:DB8::2", "2001:db8:0:0:ffff::1", "2001:db8::1%eth0"},
				{"2001:db8:0:1::1"},
				{"fe80::1%eth0", "fe80::1%eth1", "fe80::2"},
				{"::1", "::2"},
				{"10.0.0.1 "},
				{"010.0.0.1"},
				{"10.0.0.1:80"},
				{"10.0.0"},
				{"[::1]"},
				{"10.0.0.1/32"},
			}},
			{"ipv4_prefix 24\nipv6_prefix 128", [][]string{
				{"10.0.0.1", "10.0.0.255", "::ffff:10.0.0.77"},
				{"10.0.1.1", "::ffff:10.0.1.2"},
				{"2001:db8::1", "2001:0db8:0:0::0001"},
				{"2001:db8::2"},
			}},
			{"ipv4_prefix 0\nipv6_prefix 0", [][]string{
				{"10.0.0.1", "192.168.0.1", "::ffff:1.2.3.4", "0.0.0.0"},
				{"2001:db8::1", "::1", "::"},
				{"text"},
			}},
			{"ipv6_prefix 48", [][]string{{"2001:db8:1::1", "2001:db8:1:ffff::1"}, {"2001:db8:2::1"}}},
		} {
			s := serve(t, setup{app: b.app() + "\nheaders off", site: fmt.Sprintf(`
				rate_limit {
					zone z%d {
						key {query.addr}
						rule 1/1h
						%s
					}
				}
				respond ok`, len(c.options), c.options)})
			for _, client := range c.clients {
				for i, addr := range client {
					want := 429
					if i == 0 {
						want = 200
					}
					s.want(req{path: "/?addr=" + strings.NewReplacer("%", "%25", " ", "+").Replace(addr)}, want)
				}
			}
		}
	})
}

// TestDefaultKeyIsClient checks that the default key is the address forwarded by
// trusted proxies.
func TestDefaultKeyIsClient(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: "rate_limit {\nzone z {\nrule 1/1h\n}\n}\nrespond ok"})
		s.want(req{ip: "10.0.0.1"}, 200, 429)
		s.want(req{ip: "::ffff:10.0.0.1"}, 429)
		s.want(req{ip: "10.0.0.2"}, 200, 429)
		s.want(req{ip: "2001:db8::1"}, 200)
		s.want(req{ip: "2001:db8::2"}, 429)
		s.want(req{}, 200, 429)
	})
}

// TestMixedPartIsText checks that a part of an address and other text is compared
// as text.
func TestMixedPartIsText(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				key {client_ip}{header.A}
				ipv4_prefix 8
				rule 1/1h
			}
		}
		respond ok`})
	s.want(req{ip: "10.0.0.1"}, 200, 429)
	s.want(req{ip: "10.0.0.2"}, 200, 429)
	if len(s.log.lines(t, "a key part combines the client's address with text, so ipv4_prefix and ipv6_prefix do not apply: make the address a part of its own")) != 1 {
		t.Error("no warning")
	}
}

// TestConstantKey checks that all clients share a constant key.
func TestConstantKey(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: "rate_limit {\nzone z {\nkey all\nrule 2/1h\n}\n}\nrespond ok"})
		s.want(req{ip: "10.0.0.1"}, 200)
		s.want(req{ip: "10.0.0.2"}, 200)
		s.want(req{ip: "10.0.0.3"}, 429)
	})
}

// TestMatchAndExempt checks that matcher sets are ORed, that matchers in a set are
// ANDed, and that exempt requests pass uncounted.
func TestMatchAndExempt(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			@post method POST
			rate_limit /in/* {
				zone z {
					match path /in/a/*
					match {
						path /in/b/*
						header X-B *
					}
					match @post
					exempt 192.168.0.0/16 2001:db8::/32 ::ffff:10.1.0.1
					exempt header X-Free yes
					exempt {
						path */free
						method PUT
					}
					rule 1/1h
				}
			}
			header X-Client {client_ip}
			respond "{http.rate_limit.z.decision}"`})
		withB := map[string]string{"X-B": "b"}
		for _, q := range []req{ // not matched
			{path: "/out/a/"}, {path: "/in/c/"}, {path: "/in/b/"}, {path: "/in/c/", header: withB}, {method: "POST", path: "/out"},
		} {
			s.wantNoHeader(s.want(q, 200, 200), "RateLimit")
		}
		for _, q := range []req{ // exempt
			{path: "/in/a/", ip: "192.168.7.7"},
			{path: "/in/a/", ip: "2001:db8::1"},
			{path: "/in/a/", ip: "10.1.0.1"},
			{path: "/in/a/", ip: "::ffff:192.168.7.7"}, // as a proxy with one socket for both writes them
			{path: "/in/a/", ip: "::ffff:10.1.0.1"},
			{path: "/in/a/free", method: "PUT"},
			{path: "/in/a/", header: map[string]string{"X-Free": "yes"}},
		} {
			if a := s.want(q, 200, 200); a.body != "skipped" || q.ip != "" && a.get("X-Client") != q.ip {
				t.Errorf("%+v: decision %q of %s", q, a.body, a.get("X-Client"))
			}
		}
		for i, q := range []req{ // counted
			{path: "/in/a/"}, {path: "/in/b/", header: withB}, {path: "/in/c/", method: "POST"}, {path: "/in/a/free"},
		} {
			q.ip = fmt.Sprintf("10.0.0.%d", i)
			s.want(q, 200, 429)
		}
	})
}

// TestRedisKeysAreHashed checks that names of Redis keys are hashes with no braces
// but the hash tag's, whatever the parts contain.
func TestRedisKeysAreHashed(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		if b.redis == nil {
			return // the Redis run covers this
		}
		s := serve(t, setup{app: redisStore(b.redis.Addr, "timeout 10s", "key_prefix mine", "key_secret s3cret"), site: `
			rate_limit {
				zone z {
					key {client_ip} {header.A}
					rule 10/1h
					in_flight 5
					prevent_duplicates 1h body
				}
			}
			respond ok`})
		s.want(req{method: "POST", ip: "10.9.8.7", body: "raw body", header: map[string]string{"A": "{raw}part"}}, 200)
		keys, err := b.redis.Client().Keys(context.Background(), "*").Result()
		if err != nil {
			t.Fatal(err)
		}
		zone := 0
		for _, k := range keys {
			if !strings.HasPrefix(k, "mine:") || strings.Contains(k, "raw") || strings.Contains(k, "10.9") || strings.Count(k, "{") > 1 {
				t.Errorf("key %q", k)
			}
			if strings.Contains(k, ":z:") {
				zone++
			}
		}
		if zone < 2 {
			t.Errorf("keys %q, want those of the rule and of the duplicate", keys)
		}
	})
}

// TestRandomKeysAreSeparate checks that clients with different random parts have
// separate limits.
func TestRandomKeysAreSeparate(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	onBoth(t, func(t *testing.T, b backend) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := serve(t, setup{app: b.app(), site: "rate_limit {\nzone z {\nkey {query.a} {query.b}\nkey_missing share\nrule 1/1h\n}\n}\nrespond ok"})
		seen := make(map[string]bool)
		for range 150 {
			part := func() string {
				b := make([]byte, r.IntN(4))
				for i := range b {
					b[i] = "ab\x00\x01t4:\xff"[r.IntN(8)]
				}
				if _, err := netip.ParseAddr(string(b)); err == nil {
					return "" // addresses in one network share a key
				}
				return string(b)
			}
			path := "/?" + url.Values{"a": {part()}, "b": {part()}}.Encode()
			want := 200
			if seen[path] {
				want = 429
			}
			seen[path] = true
			s.want(req{path: path}, want)
		}
	})
}
