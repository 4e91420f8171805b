package test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// meters are the algorithms whose levels drain at a limit.
var meters = []string{"gcra", "token_bucket", "leaky_bucket nodelay"}

// TestRaisedLimitFrees uses up 3/1h and raises the limit to 3600/1h with the same burst, by a reload
// and by a document: what was used drains at the limit in force. It is kept: a key waits for as much
// as it has used, under a limit that is raised by less and when it is lowered again.
func TestRaisedLimitFrees(t *testing.T) {
	for _, algorithm := range meters {
		t.Run(algorithm, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b backend) {
				r := &ruledSite{path: filepath.Join(t.TempDir(), "rules.json")}
				zone := func(limit int) setup {
					return setup{app: b.app() + "rules file " + r.path, site: fmt.Sprintf("rate_limit {\nzone api {\nkey {header.X-Key}\nrule %d/1h %s {\nburst 3\n}\n}\n}\nrespond ok", limit, algorithm)}
				}
				key := func(name string) req { return req{header: map[string]string{"X-Key": name}} }
				r.site = serve(t, zone(3))
				steps := func() float64 { return r.metric("clock_steps_total", "store", "redis") }
				before := steps()
				r.want(key("full"), 200, 200, 200)
				r.wantWait(key("full"), 1100, 1200)
				r.want(key("part"), 200, 200)
				r.reload(zone(6))
				r.wantWait(key("full"), 550, 600)
				r.want(key("part"), 200, 429)
				r.reload(zone(3600))
				r.wantWait(key("full"), 1, 1)
				r.reload(zone(3))
				r.want(key("other"), 200, 200, 200)
				r.wantWait(key("other"), 1100, 1200)
				name, options, _ := strings.Cut(algorithm, " ")
				if options != "" {
					options = `, "` + options + `": true`
				}
				r.apply(fmt.Sprintf(`{"zones": {"api": {"rules": [{"limit": 3600, "window": "1h", "algorithm": {"name": %q, "burst": 3%s}}]}}}`, name, options))
				r.wantWait(key("other"), 1, 1)
				if n := steps() - before; n != 0 {
					t.Errorf("clock_steps_total rose by %v, want 0", n)
				}
			})
		})
	}
}

// TestRaisedLimitOfRequestFrees uses up a limit that the request brings, or that the plan of an account
// gives, and brings a greater one.
func TestRaisedLimitOfRequestFrees(t *testing.T) {
	for _, algorithm := range meters {
		t.Run(algorithm, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b backend) {
				s := serve(t, setup{app: b.app(), site: strings.ReplaceAll(`
					map {header.X-Plan} {plan_limit} {
						gold 3600
						free 3
					}
					rate_limit {
						zone requests {
							key {header.X-Key}
							match header X-Limit *
							rule {header.X-Limit}/1h else 3 ALGORITHM {
								burst 3
							}
						}
						zone plans {
							key {header.X-Key}
							match header X-Plan *
							rule {plan_limit}/1h else 3 ALGORITHM {
								burst 3
							}
						}
					}
					respond ok`, "ALGORITHM", algorithm)})
				for header, limits := range map[string][2]string{"X-Limit": {"3", "3600"}, "X-Plan": {"free", "gold"}} {
					with := func(limit string) req { return req{header: map[string]string{"X-Key": "a", header: limit}} }
					s.want(with(limits[0]), 200, 200, 200)
					s.wantWait(with(limits[0]), 1100, 1200)
					s.wantWait(with(limits[1]), 1, 1)
				}
			})
		})
	}
}

// TestRaisedLimitOfCommandFrees raises a limit by the command set. What responses have overdrawn drains
// at the new limit, too, which the command says, and reset frees the key.
func TestRaisedLimitOfCommandFrees(t *testing.T) {
	for _, algorithm := range meters {
		t.Run(algorithm, func(t *testing.T) { onBoth(t, func(t *testing.T, b backend) { raiseByCommand(t, b, algorithm) }) })
	}
}

func raiseByCommand(t *testing.T, b backend, algorithm string) {
	s := serve(t, setup{app: b.app() + "rules file " + filepath.Join(t.TempDir(), "rules.json"), site: strings.ReplaceAll(`
		rate_limit /plain {
			zone plain {
				key {header.X-Key}
				rule 3/1h ALGORITHM
			}
		}
		rate_limit /settled {
			zone settled {
				key {header.X-Key}
				rule 3/1h ALGORITHM
				settle {http.response.header.X-Cost}
			}
		}
		header X-Cost 99
		respond ok`, "ALGORITHM", algorithm)})
	until(t, "the source to be read", func() bool { return s.source().State == "empty" })
	in := func(path string) req { return req{path: path, header: map[string]string{"X-Key": "a"}} }
	s.want(in("/plain"), 200, 200, 200, 429)
	s.want(in("/settled"), 200)
	s.wantWait(in("/settled"), 96*1200, 97*1200)
	out, err := s.shell("", "set", "plain", "3600/1h", "burst", "3", "--yes")
	if err != nil || strings.Contains(out, "note:") {
		t.Errorf("set: %v\n%s, want no note on a zone whose keys are not overdrawn", err, out)
	}
	s.wantShell("note: zone settled: a key that responses have overdrawn is denied until what it owes has drained, at the higher of the old and the new rate; reset settled <part>... frees it",
		"set", "settled", "3600/1h", "burst", "3", "--yes")
	until(t, "the limits", func() bool {
		limits := int64(0)
		for _, z := range s.zones().Zones {
			limits += z.Rules[0].Limit
		}
		return limits == 7200
	})
	s.wantWait(in("/plain"), 1, 1)
	s.wantWait(in("/settled"), 60, 97)
	s.wantShell("", "reset", "settled", "a")
	s.want(in("/settled"), 200)
}

// wantWait checks that a request is denied, with a Retry-After from least to most.
func (s *site) wantWait(q req, least, most int) {
	s.Helper()
	a := s.want(q, 429)
	if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < least || wait > most {
		s.Errorf("Retry-After %q, want %d to %d", a.header.Get("Retry-After"), least, most)
	}
}
