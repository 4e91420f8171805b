package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/topk"
)

// TestExceptionsInForce checks that the exceptions that have not ended are listed with what they do,
// until when, who made them and why, by the API, the command and the zones; also those that a
// document has without saying who made them.
func TestExceptionsInForce(t *testing.T) {
	onSources(t, func(t *testing.T, s *site) {
		s.wantShell("no exception is in force", "exceptions")
		for _, args := range [][]string{
			{"block", "z", "192.0.2.1", "1h", "--reason", "too many logins", "--yes"},
			{"allow", "z", "192.0.2.2", "7/1m", "2099-01-02T03:04:05Z", "--yes"},
			{"allow", "z", "192.0.2.3", "--yes"},
		} {
			s.wantShell("written", args...)
		}
		until(t, "the exceptions to be in force", func() bool { return len(s.zones().Zones[0].Exceptions) == 3 })
		out, err := s.shell("", "exceptions", "z")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if err != nil || len(lines) != 4 {
			t.Fatalf("%v:\n%s", err, out)
		}
		for i, want := range [][]string{
			{"ZONE", "KEY", "WHAT", "UNTIL", "WHO", "WHY"},
			{"z", "192.0.2.1", "blocked", "@", "too many logins"},
			{"z", "192.0.2.2", "7/1m", "2099-01-02", "@"},
			{"z", "192.0.2.3", "unlimited", "unblock", "@"},
		} {
			for _, part := range want {
				if !strings.Contains(lines[i], part) {
					t.Errorf("line %d: %q has no %q", i, lines[i], part)
				}
			}
		}
		var all cli.Exceptions
		out, err = s.shell("", "exceptions", "--json")
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if x := all.Exceptions; err != nil || len(x) != 3 || x[0].Does != "blocked" || x[0].Why != "too many logins" || x[0].Who == "" || x[0].Until.IsZero() || !x[2].Until.IsZero() || !slices.Equal(x[2].Key, []string{"192.0.2.3"}) {
			t.Errorf("%v: %s", err, out)
		}
		if out, err := s.shell("", "exceptions", "nowhere"); err == nil || !strings.Contains(err.Error(), `zone "nowhere": there is none of this name`) {
			t.Errorf("%v: %s", err, out)
		}
		s.wantShell("written", "unblock", "z", "192.0.2.3", "--yes")
		until(t, "the exception to end", func() bool { return len(s.zones().Zones[0].Exceptions) == 2 })
	})
}

// TestEndedExceptionsAreNotListed checks that an exception that has ended is in no list, and that one
// without a claim is.
func TestEndedExceptionsAreNotListed(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 2/100h"))
	s.apply(zoneDocument(`{"exceptions": [{"key": ["10.0.0.1"], "unlimited": true, "until": "2020-01-02T03:04:05Z"}, {"key": ["10.0.0.2"], "unlimited": true}]}`))
	var all cli.Exceptions
	if status, text := s.admin("GET", "exceptions", "", &all); status != 200 || len(all.Exceptions) != 1 || all.Exceptions[0].Key[0] != "10.0.0.2" || all.Exceptions[0].Who != "" {
		t.Errorf("%d: %s", status, text)
	}
}

// TestTopHasParts checks that frequent keys have the parts by which block and allow name them: parts
// with spaces stay apart, and a key that is counted under something else than its parts, or whose
// parts may not be shown, has none.
func TestTopHasParts(t *testing.T) {
	with := func(option string) setup {
		return setup{site: "rate_limit {\n" + option + "\nzone pair {\nkey {query.a} {query.b}\nrule 1/1h\n}\nzone either {\nmatch query c=1\nkey {query.none}\nrule 1000/1h\n}\n}\nrespond ok"}
	}
	hits := func(s *site, zone string) []topk.Hit {
		var top cli.Top
		if status, text := s.admin("GET", "zones/"+zone+"/top", "", &top); status != 200 {
			t.Fatal(text)
		}
		return top.Busy
	}
	s := serve(t, with("log_key"))
	for range 4 {
		s.send(req{path: "/?a=one+two&b=three&c=1"})
	}
	pair := hits(s, "pair")
	if len(pair) != 1 || !slices.Equal(pair[0].Parts, []string{"one two", "three"}) || pair[0].Name != "one two three" {
		t.Fatalf("%+v", pair)
	}
	if k := s.key("GET", "pair", pair[0].Parts...); k.Key != pair[0].Key {
		t.Errorf("the parts name the key %s, want %s", k.Key, pair[0].Key)
	}
	if either := hits(s, "either"); len(either) != 1 || either[0].Parts != nil {
		t.Errorf("%+v, want no parts: one is missing, and the address counts", either)
	}
	s = serve(t, with(""))
	s.send(req{path: "/?a=one+two&b=three"})
	if pair := hits(s, "pair"); len(pair) != 1 || pair[0].Parts != nil || pair[0].Name != "" {
		t.Errorf("%+v, want neither parts nor a name without log_key", pair)
	}
}

// TestHistoryHasCosts checks that what responses cost is in the history, in the answer about zones
// and in no number of requests, and that the answer says where the instance listens.
func TestHistoryHasCosts(t *testing.T) {
	s := serve(t, setup{site: "route {\nrate_limit {\nzone z {\nsettle {http.response.header.X-Cost}\nrule 100000000000/1h\n}\n}\nheader X-Cost 5000000000\nrespond ok\n}"})
	s.want(req{}, 200, 200)
	until(t, "the cost in the history", func() bool {
		var all history.Past
		if status, text := s.admin("GET", "history?zone=z", "", &all); status != 200 {
			t.Fatal(text)
		}
		n := uint64(0)
		for _, c := range all.Zones["z"].Cost {
			n += uint64(c)
		}
		return n > 4_000_000_000 // a step has at most 4294967295
	})
	all := s.zones()
	if z := all.Zones[0]; z.Cost != 10_000_000_000 || z.Decisions["allowed"] != 2 {
		t.Errorf("cost %d, decisions %v", z.Cost, z.Decisions)
	}
	if len(all.Instance.Listen) == 0 || !strings.Contains(fmt.Sprint(all.Instance.Listen), ":") {
		t.Errorf("it listens at %q", all.Instance.Listen)
	}
}
