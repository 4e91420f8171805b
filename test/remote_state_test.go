package test

import (
	"os"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

// TestSwitchOfAllZones checks that what a document says of "*" wins over every zone, keeps
// the counts, and ends with it.
func TestSwitchOfAllZones(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serveRuled(t, setup{app: b.app(), site: `rate_limit {
			zone a {
				key a
				rule 2/100h
			}
			zone b {
				key b
				rule 4/100h
			}
		}
		respond ok`})
		s.want(req{}, 200, 200, 429)
		s.apply(`{"zones": {"*": {"enabled": false}, "a": {"enabled": true, "rules": [{"limit": 1, "window": "100h"}]}}}`)
		s.want(req{}, 200, 200, 200, 200, 200)
		for _, z := range s.zones().Zones {
			if z.Enabled || z.Origin != "file" {
				t.Errorf("%+v", z)
			}
		}
		s.apply(`{"zones": {"*": {"shadow": true}, "a": {"shadow": false}}}`)
		s.want(req{}, 200, 200, 200)
		for _, z := range s.zones().Zones {
			if !z.Enabled || !z.Shadow {
				t.Errorf("%+v", z)
			}
		}
		s.apply(`{"zones": {"*": {"shadow": true}, "b": {"enabled": false}}}`)
		for _, z := range s.zones().Zones {
			if z.Enabled != (z.Name == "a") || !z.Shadow {
				t.Errorf("%+v", z)
			}
		}
		s.apply(`{"zones": {}}`)
		s.want(req{}, 429) // the two that were counted first
		if r := s.zones().Rules; len(r.Unknown) != 0 {
			t.Errorf("unknown zones: %q", r.Unknown)
		}
		for zone, want := range map[string]string{
			`{"enabled": true}`:                 `/zones/*/enabled: true: want only false`,
			`{"shadow": false}`:                 `/zones/*/shadow: false: want only true`,
			`{"shadow": true, "rules": []}`:     `/zones/*: rules, overrides or exceptions: want only enabled and shadow`,
			`{"enabled": false, "keys": ["x"]}`: `/zones/*/keys: unknown: want enabled, exceptions, overrides, rules or shadow`,
			`[]`:                                `/zones/*: []: want an object`,
		} {
			if msg := s.rejected(`{"zones": {"*": ` + zone + `}}`); !strings.Contains(msg, want) {
				t.Errorf("%s: %q, want %q", zone, msg, want)
			}
		}
		s.want(req{}, 429)
	})
}

// source returns what the admin API says of the source of rules.
func (s *site) source() *cli.Source { return s.zones().Rules }

// TestSourceStates follows a source through all of its states. A source that never had a
// document is no error, one whose document is gone is, and the rules stay.
func TestSourceStates(t *testing.T) {
	c := zoneOf(backend{}, "rule 1/100h")
	before := rejections(t)
	s := serveRuled(t, c)
	c.app += "\nrules file " + s.path
	is := func(state, text string) {
		t.Helper()
		until(t, "the state "+state, func() bool { return s.source().State == state && strings.Contains(s.source().Error, text) })
		if r := s.source(); (r.Error == "") != (text == "") || r.ErrorSince.IsZero() != (text == "") || r.Lost != strings.Contains(text, "lost") {
			t.Errorf("%+v", r)
		}
	}
	is("empty", "")
	if n := rejections(t) - before; n != 0 {
		t.Errorf("%v errors were counted, want none", n)
	}
	s.want(req{}, 200, 429)
	s.write(`{"zones": {"z": 1}}`)
	is("rejected", "/zones/z: 1: want an object")
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	is("empty", "") // it was never in force
	s.write(`{"zones": {"z": 1}}`)
	is("rejected", "/zones/z: 1: want an object")
	s.reload(c)
	is("rejected", "/zones/z: 1: want an object")
	s.apply(zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}]}`))
	is("ok", "")
	remove := func() {
		t.Helper()
		if err := os.Remove(s.path); err != nil {
			t.Fatal(err)
		}
		is("away", `the source of rules has lost the document: its rules stay in force; write it again, or {"zones": {}} for the configured ones: `)
		if r := s.source(); !r.Lost || !strings.Contains(r.Error, s.path) {
			t.Errorf("%+v, want lost and the file", r)
		}
	}
	remove()
	s.want(req{}, 200, 200, 429)
	s.reload(c)
	is("away", "has lost the document")
	if err := stopCaddy(); err != nil {
		t.Fatal(err)
	}
	s.reload(c) // as a process that is started again
	is("away", "has lost the document")
	s.want(req{}, 200, 200, 200, 429)
	s.apply(`{"zones": {}}`)
	is("ok", "")
	s.want(req{}, 429)
}
