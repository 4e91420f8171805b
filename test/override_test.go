package test

import (
	"fmt"
	"testing"
)

func TestOverrides(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					key {client_ip} {header.A}
					key_missing share
					rule 1/1h
					override 10.0.0.0/8 * {
						rule 2/1h
					}
					override 10.1.0.0/16 * {
						rule 3/1h
						rule 30/2h gcra
					}
					override 10.1.0.1 * {
						rule 4/1h
					}
					override 10.1.0.1 gold unlimited
					override * blocked {
						rule 5/1h
						rule 0/1h name never
					}
					override 2001:db8::/32 * {
						rule 2/1h
					}
					override 10.1.0.9 blocked {
						rule 1/2h
					}
				}
			}
			respond ok
			handle_errors {
				respond {http.rate_limit.exceeded.rule}
			}`})
		q := func(ip, a string) req { return req{ip: ip, header: map[string]string{"A": a}} }
		s.want(q("192.168.0.1", "x"), 200, 429)
		s.want(q("10.2.0.1", "x"), 200, 200, 429)
		s.want(q("::ffff:10.2.0.2", "x"), 200, 200, 429)
		a := s.want(q("10.1.0.2", "x"), 200)
		s.wantHeader(a, "RateLimit-Policy", `"z";q=3;w=3600, "z.2";q=30;w=7200`)
		s.want(q("10.1.0.2", "x"), 200, 200, 429)
		s.want(q("10.1.0.2", "y"), 200, 200, 200, 429)
		s.want(q("10.1.0.1", "x"), 200, 200, 200, 200, 429)
		for range 5 {
			s.wantNoHeader(s.want(q("10.1.0.1", "gold"), 200), "RateLimit")
		}
		s.want(q("2001:db8:7::1", "x"), 200, 200, 429)
		s.want(q("2001:db9::1", "x"), 200, 429)
		// A limit of 0 blocks: there is no Retry-After.
		a = s.want(q("192.168.0.1", "blocked"), 429, 429)
		s.wantNoHeader(a, "Retry-After", "RateLimit")
		if a.body != "never" {
			t.Errorf("rule %q", a.body)
		}
		// The most specific override wins: two exact parts over any pattern.
		s.want(q("10.1.0.9", "blocked"), 200, 429)
	})
}

// TestOverrideKeepsCounts checks that changing an override's limit keeps the counts
// and that removing it restores the zone's own rules.
func TestOverrideKeepsCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		with := func(override string) setup {
			return setup{app: b.app(), site: "rate_limit {\nzone z {\nrule 2/1h\n" + override + "\n}\n}\nrespond ok"}
		}
		s := serve(t, with("override 127.0.0.1 {\nrule 3/1h\n}"))
		s.want(req{}, 200, 200)
		s.reload(with("override 127.0.0.1 {\nrule 4/1h\n}"))
		s.want(req{}, 200, 200, 429)
		s.reload(with("override 127.0.0.1 unlimited"))
		s.want(req{}, 200, 200, 200)
		s.reload(with("override 127.0.0.1 {\nrule 0/1h\n}"))
		s.want(req{}, 429)
	})
}

// TestOverrideOfOnePart checks exact overrides and prefixes of all lengths: the
// longest match wins.
func TestOverrideOfOnePart(t *testing.T) {
	lines := ""
	for bits := 8; bits <= 32; bits++ {
		lines += fmt.Sprintf("override 10.0.0.0/%d {\nrule %d/1h\n}\n", bits, bits)
	}
	s := serve(t, setup{site: "rate_limit {\nzone z {\nrule 1/1h\n" + lines + "override text {\nrule 50/1h\n}\nkey {query.k}\n}\n}\nrespond ok"})
	for key, limit := range map[string]int{
		"10.0.0.0": 32, "10.0.0.1": 31, "10.0.0.2": 30, "10.0.0.128": 24, "10.128.0.0": 8, "10.64.0.0": 9, "11.0.0.0": 1, "text": 50, "texts": 1,
	} {
		s.wantHeader(s.want(req{path: "/?k=" + key}, 200), "RateLimit-Policy", fmt.Sprintf(`"z";q=%d;w=3600`, limit))
	}
}
