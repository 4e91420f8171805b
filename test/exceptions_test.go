package test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestExceptions checks that exceptions precede all overrides and replace none, that a request
// meets the most specific one that has not ended, and that it is as before when they have.
func TestExceptions(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serveRuled(t, zoneOf(b, "rule 2/100h\noverride 10.0.0.1 {\nrule 0/1h name mine\n}"))
		s.want(req{ip: "10.0.0.1"}, 429)
		soon := time.Now().Add(3 * time.Second)
		s.apply(zoneDocument(fmt.Sprintf(`{"exceptions": [
			{"key": ["10.0.0.1"], "unlimited": true, "until": %q},
			{"key": ["10.0.0.2"], "rules": [{"name": "blocked", "limit": 0, "window": "1s"}], "until": %q},
			{"key": ["10.0.0.0/24"], "rules": [{"name": "net", "limit": 1, "window": "100h"}]},
			{"key": ["10.0.1.1"], "unlimited": true, "until": "2026-01-02T03:04:05Z"}]}`, soon.Format(time.RFC3339Nano), soon.Format(time.RFC3339Nano))))
		s.want(req{ip: "10.0.0.1"}, 200, 200, 200)
		s.want(req{ip: "10.0.0.2"}, 429)
		if k := s.key("GET", "z", "10.0.0.2"); k.Rule != "blocked" || fmt.Sprint(k.Override) != "[10.0.0.2]" || !k.Except || k.Until.IsZero() {
			t.Errorf("%+v, want it denied by the exception", k)
		}
		s.want(req{ip: "10.0.0.3"}, 200, 429)
		s.want(req{ip: "10.0.1.1"}, 200, 200, 429) // it has ended long ago
		if z := s.zones().Zones[0]; len(z.Exceptions) != 4 || z.Overrides != 1 {
			t.Errorf("%d exceptions and %d overrides, want 4 and 1", len(z.Exceptions), z.Overrides)
		}
		until(t, "the exceptions to end", func() bool { return time.Now().After(soon.Add(200 * time.Millisecond)) })
		s.want(req{ip: "10.0.0.2"}, 200, 429) // that of the network is left
		s.apply(zoneDocument(`{}`))
		s.want(req{ip: "10.0.0.1"}, 429)
	})
}

// TestInvalidExceptions checks the errors of exceptions.
func TestInvalidExceptions(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 2/100h"))
	for exceptions, want := range map[string]string{
		`{}`:                      `/zones/z/exceptions: {}: want a list`,
		`[null]`:                  `exception null`,
		`[{"key": ["10.0.0.1"]}]`: `/zones/z/exceptions/0: override ["10.0.0.1"]: want either unlimited or rules`,
		`[{"key": ["10.0.0.1", "b"], "unlimited": true}]`:                                            `/zones/z/exceptions/0: override ["10.0.0.1" "b"]`,
		`[{"key": ["10.0.0.1"], "unlimited": true, "until": "soon"}]`:                                `/zones/z/exceptions/0/until: "soon": want an instant`,
		`[{"key": ["10.0.0.1"], "unlimited": true}, {"key": ["10.0.0.1"], "unlimited": true}]`:       `exception ["10.0.0.1"] is given twice`,
		`[{"key": ["10.0.0.0/24"], "unlimited": true}, {"key": ["10.0.0.9/24"], "unlimited": true}]`: `is given twice`,
		`[{"key": ["10.0.0.1"], "rules": [{"limit": 1, "window": "1s", "limit_from": "{a}"}]}]`:      `/zones/z/exceptions/0/rules/0/limit_from: unknown`,
		`[{"key": ["10.0.0.1"], "rules": [{"limit": -1, "window": "1s"}]}]`:                          `/zones/z/exceptions/0/rules/0: `,
		`[{"key": ["10.0.0.1"], "unlimited": true, "till": 1}]`:                                      `/zones/z/exceptions/0/till: unknown: want`,
	} {
		a := s.ask("POST", "rules/validate", zoneDocument(`{"exceptions": `+exceptions+`}`), "Content-Type", asJSON)
		var v struct{ Error string }
		if err := json.Unmarshal([]byte(a.body), &v); err != nil {
			t.Fatal(err)
		}
		if a.status != 200 || !strings.Contains(v.Error, want) {
			t.Errorf("%s: %s, want %s", exceptions, v.Error, want)
		}
	}
}

// TestExceptionsNeedReaders checks that exceptions are not written while an instance is alive that
// cannot read them.
func TestExceptionsNeedReaders(t *testing.T) {
	s, _, client := serveEditable(t)
	ctx := context.Background()
	const alive = "diana:{instances}"
	until(t, "heartbeats", func() bool { return client.StrLen(ctx, alive).Val() > 0 && client.StrLen(ctx, alive+":2").Val() > 0 })
	until(t, "the exception to be refused", func() bool {
		own := client.Get(ctx, alive).Val()
		client.Append(ctx, alive, "an older"+own[8:16]) // it has sent a heartbeat, too
		out, err := s.shell("", "block", "z", "10.0.0.1", "1h", "--yes")
		return err != nil && strings.Contains(err.Error(), "instances of store redis cannot read exceptions") && !strings.Contains(out, "written")
	})
	client.Del(ctx, alive)
	until(t, "the exception to be written", func() bool {
		_, err := s.shell("", "block", "z", "10.0.0.1", "1h", "--yes")
		return err == nil
	})
	until(t, "the exception", func() bool { return len(s.zones().Zones[0].Exceptions) == 1 })
	s.want(req{ip: "10.0.0.1"}, 429)
	s.wantShell("written", "unblock", "z", "10.0.0.1", "--yes")
}

// TestDenyingRuleBesideBlock puts overrides and exceptions in force that deny everything, and have
// another rule, whose block never starts.
func TestDenyingRuleBesideBlock(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 5/100h\noverride 10.0.0.3 {\nrule 0/1s\nrule 5/1s block 1h\n}"))
	s.want(req{ip: "10.0.0.3"}, 429)
	for _, list := range []string{"overrides", "exceptions"} {
		for _, rules := range []string{
			`{"limit": 0, "window": "1s"}, {"limit": 5, "window": "1s", "block": "1h"}`,
			`{"limit": 5, "window": "1s", "block": "1h"}, {"limit": 0, "window": "1s"}`,
		} {
			s.apply(zoneDocument(`{"` + list + `": [{"key": ["10.0.0.1"], "rules": [` + rules + `]}]}`))
			s.want(req{ip: "10.0.0.1"}, 429)
		}
	}
	s.want(req{ip: "10.0.0.2"}, 200)
}

// TestNullZoneIsValidated validates a document with a member that changes nothing, beside a store.
func TestNullZoneIsValidated(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{redistest.Start(t)}, "rule 5/100h"))
	a := s.ask("POST", "rules/validate", `{"zones": {"z": null}}`, "Content-Type", asJSON)
	var v struct{ Valid bool }
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || !v.Valid {
		t.Errorf("%s: %v", a.body, err)
	}
}
