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

	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/rules"
)

// ruledSite is a site that follows a rules file.
type ruledSite struct {
	*site
	path string
}

func serveRuled(t *testing.T, c setup) *ruledSite {
	t.Helper()
	r := &ruledSite{path: filepath.Join(t.TempDir(), "rules.json")}
	c.app += "\nrules file " + r.path
	r.site = serve(t, c)
	return r
}

// follower returns the follower of the running configuration's source.
func (s *site) follower() *follow.Follower {
	s.Helper()
	list := pool.Values("followers")
	if len(list) != 1 {
		s.Fatalf("%d followers, want 1", len(list))
	}
	return list[0].(*follow.Follower)
}

// rejections returns the number of times a document was rejected or unreadable.
func rejections(t *testing.T) float64 {
	t.Helper()
	var m dto.Metric
	if err := metrics.Of(process.Program()).RulesErrors.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// write replaces the source's document atomically: part of a document could be
// another valid one.
func (r *ruledSite) write(document string) {
	r.Helper()
	if err := os.WriteFile(r.path+".new", []byte(document), 0o600); err != nil {
		r.Fatal(err)
	}
	if err := os.Rename(r.path+".new", r.path); err != nil {
		r.Fatal(err)
	}
}

// apply writes a document and waits until it is in force.
func (r *ruledSite) apply(document string) {
	r.Helper()
	want, err := rules.Parse([]byte(document))
	if err != nil {
		r.Fatal(err)
	}
	before := rejections(r.T)
	r.write(document)
	until(r, "the document to be in force", func() bool {
		st := r.follower().Status()
		if isRejection(st.Err) && rejections(r.T) > before {
			r.Fatal(st.Err)
		}
		return st.Err == nil && reflect.DeepEqual(r.follower().Good(), want)
	})
}

// isRejection reports whether err is an error in a document rather than in reading
// it.
func isRejection(err error) bool {
	return err != nil && !errors.Is(err, fs.ErrNotExist)
}

// rejected writes a document that must be rejected and returns the error.
func (r *ruledSite) rejected(document string) (msg string) {
	r.Helper()
	before := rejections(r.T)
	r.write(document)
	until(r, "the document to be rejected: "+document, func() bool {
		if rejections(r.T) == before { // first: the error is replaced after it was counted
			return false
		}
		err := r.follower().Status().Err
		if isRejection(err) {
			msg = err.Error()
		}
		return msg != ""
	})
	return msg
}

func zoneDocument(zone string) string { return `{"zones": {"z": ` + zone + `}}` }

// TestRemoteRules changes everything that a document can change, while the counts
// continue.
func TestRemoteRules(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serveRuled(t, zoneOf(b, "rule 4/100h\noverride 10.0.0.9 unlimited"))
		q := req{ip: "10.0.0.1"}
		s.want(q, 200, 200)
		s.apply(zoneDocument(`{"rules": [{"limit": 6, "window": "100h"}]}`))
		s.want(q, 200, 200, 200, 200, 429) // two were used
		s.apply(zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}]}`))
		s.want(q, 429)
		s.want(req{ip: "10.0.0.9"}, 200, 200, 200, 200) // options that the document omits are kept
		s.apply(zoneDocument(`{"shadow": true}`))
		s.want(q, 200, 200)
		s.apply(zoneDocument(`{"enabled": false}`))
		s.want(q, 200, 200)
		s.apply(zoneDocument(`{"rules": [{"limit": 100, "window": "100h"}], "overrides": [
			{"key": ["10.0.0.2"], "unlimited": true}, {"key": ["10.0.0.3"], "rules": [{"limit": 0, "window": "1s"}]},
			{"key": ["10.1.0.0/16"], "rules": [{"limit": 1, "window": "100h"}]}]}`))
		s.want(req{ip: "10.0.0.3"}, 429)
		s.want(req{ip: "10.1.2.3"}, 200, 429)
		s.want(req{ip: "10.0.0.2"}, 200)
		s.apply(`{"zones": {}}`)
		s.want(q, 429) // the zone's configured limit of 4
		s.want(req{ip: "10.0.0.3"}, 200, 200, 200, 200, 429)
	})
}

// TestIncompatibleRemoteRulesResetCounts checks that rules that cannot keep the
// counts reset them, log one line per change, and release the old tables.
func TestIncompatibleRemoteRulesResetCounts(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 2/100h"))
	before := len(s.log.lines(t, startsAnew))
	for i, alg := range []string{"gcra", "fixed_window", "sliding_window", "gcra"} {
		s.want(req{}, 200, 200, 429)
		s.apply(zoneDocument(`{"rules": [{"limit": 2, "window": "100h", "algorithm": {"name": "` + alg + `"}}]}`))
		lines := func() []map[string]any { return s.log.lines(t, startsAnew)[before:] }
		until(t, alg+": a log line", func() bool { return len(lines()) > i }) // is written after the rules are in force
		if got := lines(); len(got) != i+1 || got[i]["zone"] != "z" {
			t.Fatalf("%s: log lines %v, want %d", alg, got, i+1)
		}
		wantPools(t, 1, 0)
	}
	s.want(req{}, 200, 200, 429)
}

// TestRejectedDocuments checks that a rejected document changes nothing and that
// the error names the reason.
func TestRejectedDocuments(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 2/100h\nkey {client_ip} {http.request.method}"))
	s.apply(zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}]}`))
	s.want(req{}, 200)
	for zone, want := range map[string]string{
		`{"rules": [{"limit": 1, "window": "1s"}, {"limit": 0, "window": "1s"}]}`: `/zones/z/rules/1: `,
		`{"rules": [{"limit": 1, "window": "1 fortnight"}]}`:                      `/zones/z/rules/0/window: `,
		`{"rules": [{"limit": "1", "window": "1s"}]}`:                             `/zones/z/rules/0/limit: "1": want a whole number`,
		`{"rules": [{"limit": 1, "window": "1s", "algorithm": {"name": "x"}}]}`:   `/zones/z/rules/0: algorithm "x": want calendar, fixed_window, `,
		`{"rules": [{"limit": 1, "window": "1s", "burst": 1}]}`:                   `/zones/z/rules/0/burst: unknown: want algorithm, block, limit, max_wait, name, notify or window`,
		`{"rules": [null]}`: `/zones/z/rules/0: rule null: want an object`,
		`{"rules": [{"limit": 1, "window": "1 minute"}]}`: `/zones/z/rules/0/window: "1 minute": want a duration such as 10s`,
		`{"rules": []}`: `/zones/z: no rule`,
		`{"overrides": [{"key": ["x"], "unlimited": true}]}`:                                                            `/zones/z/overrides/0: override ["x"]: 1 parts: want 2`,
		`{"overrides": [{"key": ["10.0.0.1", "y"], "rules": [{"limit": 1, "window": "1s", "name": "/"}]}]}`:             `/zones/z/overrides/0/rules/0: rule name "/"`,
		`{"overrides": [{"key": ["10.0.0.1", "y"], "unlimited": true}, {"key": ["10.0.0.1", "y"], "unlimited": true}]}`: `/zones/z/overrides/1: override ["10.0.0.1" "y"] is given twice`,
		`{"overrides": [null, {"key": ["10.0.0.1", "y"], "rules": [{"limit": -1, "window": "1s"}]}, null]}`:             `/zones/z/overrides/0: `,
		`{"match": []}`: `/zones/z/match: unknown`,
	} {
		if msg := s.rejected(zoneDocument(zone)); !strings.Contains(msg, want) {
			t.Errorf("%s: %q, want %q", zone, msg, want)
		}
	}
	if msg := s.rejected(`{"zones": {"z": {}, "y": 7}}`); msg != "/zones/y: 7: want an object" {
		t.Errorf("%q", msg)
	}
	s.want(req{}, 200, 200, 429)
	const msg = "the remote rules are rejected: the previous rules stay in force"
	until(t, "a line for each", func() bool { return len(s.log.lines(t, msg)) >= 13 })
	if lines := s.log.lines(t, msg); lines[0]["source"] != "file" {
		t.Errorf("log lines: %v", lines)
	}
	wantPools(t, 1, 0)
}

// TestUnknownZonesAreReported checks that unknown zones in a document are logged
// and otherwise ignored.
func TestUnknownZonesAreReported(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 2/100h"))
	s.apply(`{"zones": {"z": {"rules": [{"limit": 1, "window": "100h"}]}, "gone": {}, "` + strings.Repeat("x", 300) + `\n": {}}}`)
	s.want(req{}, 200, 429)
	const msg = "remote rules name zones that this configuration does not have: they are ignored"
	s.log.wait(t, msg) // is written after the rules are in force
	lines := s.log.lines(t, msg)
	if len(lines) != 1 || !strings.HasPrefix(fmt.Sprint(lines[0]["zones"]), "[gone x") || len(fmt.Sprint(lines[0]["zones"])) > 80 {
		t.Errorf("%v", lines)
	}
}

// TestReplacedRulesAreLogged checks that a configuration whose rules a document replaces says
// so when it is loaded: once for a zone, and for ten zones at most.
func TestReplacedRulesAreLogged(t *testing.T) {
	own, replaced := "rate_limit {\n", ""
	for i := range 12 {
		own += fmt.Sprintf("zone many%d {\nkey {client_ip}\nrule 20/1m\n}\n", i)
		replaced += fmt.Sprintf(`, "many%d": {"rules": [{"limit": 3, "window": "1m"}]}`, i)
	}
	const line = "remote rules replace the zone's own"
	c := setup{site: "rate_limit {\nzone z {\nkey {client_ip}\nrule 20/1m\nrule 300/2h gcra\n}\nzone same {\nrule 5/1m\n}\n}\n" + own + "}\nrespond ok"}
	s := serveRuled(t, c)
	c.app += "\nrules file " + s.path
	s.apply(`{"zones": {"z": {"rules": [{"limit": 4, "window": "1m"}]}, "same": {"shadow": true, "rules": [{"limit": 5, "window": "60s"}]}}}`)
	if lines := s.log.lines(t, line); len(lines) != 0 {
		t.Errorf("%v before a reload", lines)
	}
	s.reload(c)
	lines := s.log.lines(t, line)
	if len(lines) != 1 || lines[0]["zone"] != "z" || lines[0]["rules"] != "4/1m sliding_log" || lines[0]["instead_of"] != "20/1m sliding_log, 300/2h gcra" || lines[0]["source"] != "file" || lines[0]["zones"] != 1.0 {
		t.Errorf("%v", lines)
	}
	s.apply(`{"zones": {` + strings.TrimPrefix(replaced, ", ") + `}}`)
	s.reload(c)
	if lines := s.log.lines(t, line)[1:]; len(lines) != 10 || lines[9]["zones"] != 12.0 {
		t.Errorf("%v, want ten lines of twelve zones", lines)
	}
}

// TestLastGoodRules checks that the last valid rules survive a reload, a rejected
// document and, from Caddy's storage, a restart without the source.
func TestLastGoodRules(t *testing.T) {
	c := zoneOf(backend{}, "rule 1/100h")
	s := serveRuled(t, c)
	c.app += "\nrules file " + s.path
	s.apply(zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}]}`))
	s.want(req{}, 200)
	s.reload(c)
	s.want(req{}, 200)
	s.rejected(`{"zones": 1}`)
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
	s.want(req{}, 200, 200, 200, 429) // a new process has no counts either
	until(t, "the source to be missed", func() bool { return s.follower().Status().Err != nil })
}

// TestRemoteRulesInvalidAfterReload checks that a newly loaded configuration that
// the remote rules do not fit uses its own rules, and that the remote rules are in
// force again once a configuration fits.
func TestRemoteRulesInvalidAfterReload(t *testing.T) {
	c := zoneOf(backend{}, "rule 1/100h")
	s := serveRuled(t, c)
	c.app += "\nrules file " + s.path
	s.apply(zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}], "overrides": [{"key": ["10.0.0.2"], "unlimited": true}]}`))
	two := zoneOf(backend{}, "rule 2/100h\nkey {client_ip} x")
	two.app = c.app
	s.reload(two)
	s.want(req{}, 200, 200, 429)
	s.want(req{ip: "10.0.0.2"}, 200, 200, 429)
	s.reload(c)
	s.want(req{ip: "10.0.0.2"}, 200, 200, 200)
	s.want(req{}, 200, 200, 200, 429)
}

// TestRemoteQueueKeepsOtherCounts checks that a queue added to one zone, which
// recompiles the rules of the others, keeps their counts.
func TestRemoteQueueKeepsOtherCounts(t *testing.T) {
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
	s.apply(`{"zones": {"b": {"rules": [{"limit": 1000, "window": "1s", "algorithm": {"name": "leaky_bucket"}}]}}}`)
	s.want(req{}, 200, 200, 429)
	s.apply(`{"zones": {}}`)
	s.want(req{}, 429)
}

// TestRemoteRulesOfSharedZone checks that the rules of a zone shared by two handlers
// change together.
func TestRemoteRulesOfSharedZone(t *testing.T) {
	zone := "rate_limit {\nzone z {\nrule 2/100h\n}\n}\nrespond ok"
	s := serveRuled(t, setup{site: zone, more: "http://:8002 {\n" + zone + "\n}"})
	s.apply(zoneDocument(`{"rules": [{"limit": 3, "window": "100h", "algorithm": {"name": "gcra"}}]}`))
	s.want(req{}, 200, 200)
	s.want(req{to: s.second}, 200, 429)
	wantPools(t, 1, 0)
}

// TestRemoteRulesUnderLoad checks that no request is lost or wrongly denied while
// the rules change.
func TestRemoteRulesUnderLoad(t *testing.T) {
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
			s.apply(zoneDocument(fmt.Sprintf(`{"rules": [{"limit": %d, "window": "100h", "algorithm": {"name": "%s"}}]}`,
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

// TestLastGoodRulesOverOtherOptions checks that the last good rules of a source hold over a
// reload that changes how it is reached, when it has no document any more.
func TestLastGoodRulesOverOtherOptions(t *testing.T) {
	addr := redistest.Start(t).Addr
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	with := func(options string) setup {
		c := zoneOf(backend{}, "store local\nrule 1/100h")
		c.app = redisStore(addr, options) + "rules redis diana:rules {\ninterval 1h\n}"
		return c
	}
	rdb.Set(context.Background(), "diana:rules", zoneDocument(`{"rules": [{"limit": 2, "window": "100h"}]}`), 0)
	s := serve(t, with(""))
	until(t, "the rules", func() bool { return s.follower().Good() != nil })
	until(t, "the rules to be kept", func() bool {
		files, _ := filepath.Glob(filepath.Join(s.storage, "rate_limit", "rules", "*.json"))
		return len(files) == 1
	})
	rdb.Del(context.Background(), "diana:rules")
	s.reload(with("pool_size 7"))
	s.want(req{}, 200, 200, 429)
}

// TestRemoteRulesFromStoreRedis checks that rules in the store's Redis are pushed by
// a Pub/Sub message.
func TestRemoteRulesFromStoreRedis(t *testing.T) {
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
