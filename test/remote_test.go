package test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/pool"
	"github.com/dianalimiter/diana/rules"
)

// ruled is a site whose rules a file may change.
type ruled struct {
	*site
	path string
}

func serveRuled(t *testing.T, c setup) *ruled {
	t.Helper()
	r := &ruled{path: filepath.Join(t.TempDir(), "rules.json")}
	c.app += "\nrules file " + r.path
	r.site = serve(t, c)
	return r
}

// follower follows the source of the running configuration.
func (s *site) follower() *rules.Follower {
	s.Helper()
	list := pool.Values("followers")
	if len(list) != 1 {
		s.Fatalf("%d sources are followed", len(list))
	}
	return list[0].(*rules.Follower)
}

// refusals is how often a document was rejected, or could not be read.
func refusals(t *testing.T) float64 {
	t.Helper()
	var m dto.Metric
	if err := metrics.Get().RulesErrors.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// write puts a document where the source is, at once: half of one would be another.
func (r *ruled) write(document string) {
	r.Helper()
	if err := os.WriteFile(r.path+".new", []byte(document), 0o600); err != nil {
		r.Fatal(err)
	}
	if err := os.Rename(r.path+".new", r.path); err != nil {
		r.Fatal(err)
	}
}

// give puts a document in force.
func (r *ruled) give(document string) {
	r.Helper()
	want, err := rules.Parse([]byte(document))
	if err != nil {
		r.Fatal(err)
	}
	before := refusals(r.T)
	r.write(document)
	until(r, "the document to be in force", func() bool {
		st := r.follower().Status()
		if isRefusal(st.Err) && refusals(r.T) > before {
			r.Fatal(st.Err)
		}
		return st.Err == nil && reflect.DeepEqual(r.follower().Good(), want)
	})
}

// isRefusal says whether an error is one in a document, and not in reading it.
func isRefusal(err error) bool {
	return err != nil && !errors.Is(err, fs.ErrNotExist)
}

// refused gives a document that must be refused and returns what is said of it.
func (r *ruled) refused(document string) (said string) {
	r.Helper()
	before := refusals(r.T)
	r.write(document)
	until(r, "the document to be refused: "+document, func() bool {
		err := r.follower().Status().Err
		if refusals(r.T) == before || !isRefusal(err) {
			return false
		}
		said = err.Error()
		return true
	})
	return said
}

func zoneDocument(zone string) string { return `{"zones": {"z": ` + zone + `}}` }

// TestRulesFromOutside changes everything that a document can, while the counts
// go on.
func TestRulesFromOutside(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serveRuled(t, zoneOf(b, "rule 4/100h\noverride 10.0.0.9 unlimited"))
		q := req{ip: "10.0.0.1"}
		s.want(q, 200, 200)
		s.give(zoneDocument(`{"rules": [{"limit": 6, "window": "100h"}]}`))
		s.want(q, 200, 200, 200, 200, 429) // two were used
		s.give(zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}]}`))
		s.want(q, 429)
		s.want(req{ip: "10.0.0.9"}, 200, 200, 200, 200) // what it leaves out stays
		s.give(zoneDocument(`{"shadow": true}`))
		s.want(q, 200, 200)
		s.give(zoneDocument(`{"enabled": false}`))
		s.want(q, 200, 200)
		s.give(zoneDocument(`{"rules": [{"limit": 100, "window": "100h"}], "overrides": [
			{"key": ["10.0.0.2"], "unlimited": true}, {"key": ["10.0.0.3"], "rules": [{"limit": 0, "window": "1s"}]},
			{"key": ["10.1.0.0/16"], "rules": [{"limit": 1, "window": "100h"}]}]}`))
		s.want(req{ip: "10.0.0.3"}, 429)
		s.want(req{ip: "10.1.2.3"}, 200, 429)
		s.want(req{ip: "10.0.0.2"}, 200)
		s.give(`{"zones": {}}`)
		s.want(q, 429) // the zone's own four
		s.want(req{ip: "10.0.0.3"}, 200, 200, 200, 200, 429)
	})
}

// TestRulesOfAnotherKind start the counts anew, with one line for each change,
// whose tables are given back.
func TestRulesOfAnotherKind(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 2/100h"))
	before := len(s.log.lines(t, startsAnew))
	for i, alg := range []string{"gcra", "fixed_window", "sliding_window", "gcra"} {
		s.want(req{}, 200, 200, 429)
		s.give(zoneDocument(`{"rules": [{"limit": 2, "window": "100h", "algorithm": {"name": "` + alg + `"}}]}`))
		if got := s.log.lines(t, startsAnew)[before:]; len(got) != i+1 || got[i]["zone"] != "z" {
			t.Fatalf("%s: log lines %v, want %d", alg, got, i+1)
		}
		wantPools(t, 1, 0)
	}
	s.want(req{}, 200, 200, 429)
}

// TestRefusedDocuments leave everything as it was, and say what is wrong.
func TestRefusedDocuments(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 2/100h\nkey {client_ip} {http.request.method}"))
	s.give(zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}]}`))
	s.want(req{}, 200)
	for zone, want := range map[string]string{
		`{"rules": [{"limit": 1, "window": "1s"}, {"limit": 0, "window": "1s"}]}`: `/zones/z/rules/1: `,
		`{"rules": [{"limit": 1, "window": "1 fortnight"}]}`:                      `/zones/z/rules/0/window: `,
		`{"rules": [{"limit": "1", "window": "1s"}]}`:                             `/zones/z/rules/0/limit: "1": want a whole number`,
		`{"rules": [{"limit": 1, "window": "1s", "algorithm": {"name": "x"}}]}`:   `/zones/z/rules/0: algorithm "x": want one of`,
		`{"rules": [{"limit": 1, "window": "1s", "burst": 1}]}`:                   `/zones/z/rules/0/burst: unknown: want algorithm, limit, name or window`,
		`{"rules": [null]}`: `/zones/z/rules/0: null: want an object`,
		`{"rules": []}`:     `/zones/z: no rule`,
		`{"overrides": [{"key": ["x"], "unlimited": true}]}`:                                              `/zones/z/overrides/0: override ["x"]: 1 parts: want 2`,
		`{"overrides": [{"key": ["x", "y"], "rules": [{"limit": 1, "window": "1s", "name": "/"}]}]}`:      `/zones/z/overrides/0/rules/0: rule name "/"`,
		`{"overrides": [{"key": ["x", "y"], "unlimited": true}, {"key": ["x", "y"], "unlimited": true}]}`: `/zones/z/overrides/1: override ["x" "y"] stands twice`,
		`{"match": []}`: `/zones/z/match: unknown`,
	} {
		if said := s.refused(zoneDocument(zone)); !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", zone, said, want)
		}
	}
	if said := s.refused(`{"zones": {"z": {}, "y": 7}}`); said != "/zones/y: 7: want an object" {
		t.Errorf("%q", said)
	}
	s.want(req{}, 200, 200, 429)
	if lines := s.log.lines(t, "the rules from outside are refused: those before them stay in force"); len(lines) < 12 || lines[0]["source"] != "file" {
		t.Errorf("log lines: %v", lines)
	}
	wantPools(t, 1, 0)
}

// TestUnknownZones are told of, and nothing else.
func TestUnknownZones(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 2/100h"))
	s.give(`{"zones": {"z": {"rules": [{"limit": 1, "window": "100h"}]}, "gone": {}, "` + strings.Repeat("x", 300) + `\n": {}}}`)
	s.want(req{}, 200, 429)
	lines := s.log.lines(t, "rules from outside name zones that this configuration does not have")
	if len(lines) != 1 || !strings.HasPrefix(fmt.Sprint(lines[0]["zones"]), "[gone x") || len(fmt.Sprint(lines[0]["zones"])) > 80 {
		t.Errorf("%v", lines)
	}
}

// TestLastGoodRules hold over a reload, a refusal and, from Caddy's storage, a
// restart with the source gone.
func TestLastGoodRules(t *testing.T) {
	c := zoneOf(backend{}, "rule 1/100h")
	s := serveRuled(t, c)
	c.app += "\nrules file " + s.path
	s.give(zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}]}`))
	s.want(req{}, 200)
	s.reload(c)
	s.want(req{}, 200)
	s.refused(`{"zones": 1}`)
	s.reload(c)
	s.want(req{}, 200, 429)
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	if err := stopCaddy(); err != nil {
		t.Fatal(err)
	}
	wantPools(t, 0, 0)
	s.reload(c)
	s.want(req{}, 200, 200, 200, 429) // another process would begin with no counts, too
	until(t, "the source to be missed", func() bool { return s.follower().Status().Err != nil })
}

// TestRulesThatDoNotFit the configuration that is loaded give way to its own.
func TestRulesThatDoNotFit(t *testing.T) {
	c := zoneOf(backend{}, "rule 1/100h")
	s := serveRuled(t, c)
	c.app += "\nrules file " + s.path
	s.give(zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}], "overrides": [{"key": ["10.0.0.2"], "unlimited": true}]}`))
	two := zoneOf(backend{}, "rule 2/100h\nkey {client_ip} x")
	two.app = c.app
	s.reload(two)
	s.want(req{}, 200, 200, 429)
	s.want(req{ip: "10.0.0.2"}, 200, 200, 429)
	s.reload(c)
	s.want(req{ip: "10.0.0.2"}, 200, 200, 200)
	s.want(req{}, 200, 200, 200, 429)
}

// TestRulesChangeATurn: a queue in one zone changes what the others must reckon
// with, whose counts stay.
func TestRulesChangeATurn(t *testing.T) {
	s := serveRuled(t, setup{site: `rate_limit {
		zone a {
			rule 3/100h gcra
		}
		zone b {
			rule 100/100h
		}
	}
	respond ok`})
	s.want(req{}, 200)
	s.give(`{"zones": {"b": {"rules": [{"limit": 1000, "window": "1s", "algorithm": {"name": "leaky_bucket"}}]}}}`)
	s.want(req{}, 200, 200, 429)
	s.give(`{"zones": {}}`)
	s.want(req{}, 429)
}

// TestRulesOfTwoHandlers that name one zone change together.
func TestRulesOfTwoHandlers(t *testing.T) {
	zone := "rate_limit {\nzone z {\nrule 2/100h\n}\n}\nrespond ok"
	s := serveRuled(t, setup{site: zone, more: "http://:8002 {\n" + zone + "\n}"})
	s.give(zoneDocument(`{"rules": [{"limit": 3, "window": "100h", "algorithm": {"name": "gcra"}}]}`))
	s.want(req{}, 200, 200)
	s.want(req{to: s.second}, 200, 429)
	wantPools(t, 1, 0)
}

// TestRulesUnderLoad: not a request is lost or wrongly denied while the rules
// change.
func TestRulesUnderLoad(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serveRuled(t, zoneOf(b, "rule 1000000/100h"))
		stop := make(chan struct{})
		done := make(chan error)
		for i := range 4 {
			go func() {
				var err error
				for n := 0; ; n++ {
					select {
					case <-stop:
						done <- err
						return
					default:
					}
					a, e := s.try(req{ip: fmt.Sprintf("10.%d.0.1", i)})
					if e != nil || a.status != 200 {
						err = fmt.Errorf("request %d: %w %+v", n, e, a)
					}
				}
			}()
		}
		for i := range 10 {
			s.give(zoneDocument(fmt.Sprintf(`{"rules": [{"limit": %d, "window": "100h", "algorithm": {"name": "%s"}}]}`,
				100_000*(1+i), []string{"gcra", "sliding_window"}[i/2%2])))
		}
		close(stop)
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRulesOfTheStoresRedis are pushed by a message.
func TestRulesOfTheStoresRedis(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		if b.redis == nil {
			return
		}
		c := zoneOf(b, "rule 1/100h")
		c.app += "\nrules redis diana:rules {\ninterval 1h\n}"
		s := serve(t, c)
		rdb := redis.NewClient(&redis.Options{Addr: b.redis.Addr})
		defer func() { _ = rdb.Close() }()
		until(t, "the subscription", func() bool {
			return rdb.PubSubNumSub(context.Background(), "diana:rules").Val()["diana:rules"] == 1
		})
		rdb.Set(context.Background(), "diana:rules", zoneDocument(`{"rules": [{"limit": 2, "window": "100h"}]}`), time.Hour)
		rdb.Publish(context.Background(), "diana:rules", "")
		until(t, "the rules", func() bool { return s.follower().Good() != nil })
		s.want(req{}, 200, 200, 429)
	})
}
