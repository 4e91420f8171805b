package test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// TestRaisedLimitFrees uses up 3/1h, raises the limit to 3600/1h with the same burst, and lowers
// it again: nobody waits for longer than after a full burst under the rule in force. A key that has
// used less than the burst is not freed of that.
func TestRaisedLimitFrees(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, algorithm := range []string{"gcra", "token_bucket", "leaky_bucket nodelay"} {
			zone := func(limit int) setup {
				return setup{app: b.app(), site: fmt.Sprintf("rate_limit {\nzone api {\nkey {header.X-Key}\nrule %d/1h %s {\nburst 3\n}\n}\n}\nrespond ok", limit, algorithm)}
			}
			s := serve(t, zone(3))
			full := req{header: map[string]string{"X-Key": "full " + algorithm}}
			part := req{header: map[string]string{"X-Key": "part " + algorithm}}
			s.want(full, 200, 200, 200)
			s.wantWait(full, 1100, 1200)
			s.want(part, 200, 200)
			s.reload(zone(3600))
			s.wantWait(full, 1, 1)
			s.reload(zone(6))
			s.want(part, 200, 429)
			s.wantWait(part, 500, 600)
		}
	})
}

// TestRaisedLimitOfRequestFrees uses up a limit that the request brings, and brings a greater one.
func TestRaisedLimitOfRequestFrees(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone plan {
					key {header.X-Key}
					rule {header.Limit}/1h else 3 gcra {
						burst 3
					}
				}
			}
			respond ok`})
		with := func(limit string) req {
			return req{header: map[string]string{"X-Key": "a", "Limit": limit}}
		}
		s.want(with("3"), 200, 200, 200)
		s.wantWait(with("3"), 1100, 1200)
		s.wantWait(with("3600"), 1, 1)
	})
}

// TestRaisedLimitOfDocumentFrees raises a limit by the command set. Where responses may overdraw a
// key, the command says that the key may still wait, and reset frees it.
func TestRaisedLimitOfDocumentFrees(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app() + "rules file " + t.TempDir() + "/rules.json", site: `
			rate_limit /plain {
				zone plain {
					key {header.X-Key}
					rule 3/1h gcra
				}
			}
			rate_limit /settled {
				zone settled {
					key {header.X-Key}
					rule 3/1h gcra
					settle {http.response.header.X-Cost}
				}
			}
			header X-Cost 9
			respond ok`})
		until(t, "the source to be read", func() bool { return s.source().State == "empty" })
		in := func(path string) req { return req{path: path, header: map[string]string{"X-Key": "a"}} }
		s.want(in("/plain"), 200, 200, 200, 429)
		s.want(in("/settled"), 200, 429)
		s.wantShell("written", "set", "plain", "3600/1h", "burst", "3", "--yes")
		s.wantShell("note: zone settled: keys that responses have overdrawn may still wait", "set", "settled", "3600/1h", "burst", "3", "--yes")
		until(t, "the limits", func() bool {
			limits := 0
			for _, z := range s.zones().Zones {
				limits += int(z.Rules[0].Limit)
			}
			return limits == 7200
		})
		s.wantWait(in("/plain"), 1, 1)
		s.wantWait(in("/settled"), 7000, 3*3600)
		s.wantShell("", "reset", "settled", "a")
		s.want(in("/settled"), 200)
	})
}

// wantWait checks that a request is denied, with a Retry-After from least to most.
func (s *site) wantWait(q req, least, most int) {
	s.Helper()
	a := s.want(q, 429)
	if wait, err := strconv.Atoi(strings.TrimSpace(a.header.Get("Retry-After"))); err != nil || wait < least || wait > most {
		s.Errorf("Retry-After %q, want %d to %d", a.header.Get("Retry-After"), least, most)
	}
}
