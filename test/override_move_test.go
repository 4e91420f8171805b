package test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// moves are the places that a key moves to: rules, and the document that gives it others.
var moves = []struct{ name, override, document string }{
	{"the zone", "", `{"zones": {}}`},
	{"an override", "override 127.0.0.1 {\nrule 9/1h %s\n}", `{"zones": {}}`},
	{"a network", "override 127.0.0.0/8 {\nrule 8/1h %s\n}", `{"zones": {}}`},
	{"a list", "override {\nkey 127.0.0.1\nkey 127.0.0.2\nrule 8/1h %s\n}", `{"zones": {}}`},
	{"another list", "override {\nkey 127.0.0.3\nrule 1/1h %s\n}\noverride {\nkey 127.0.0.1\nkey 127.0.0.2\nrule 7/1h %s\n}", `{"zones": {}}`},
	{"a document", "", `{"zones": {"z": {"overrides": [{"key": ["127.0.0.1"], "rules": [{"limit": 8, "window": "1h", "algorithm": {"name": "%s"}}]}]}}}`},
	{"the zone again", "", `{"zones": {}}`},
}

// TestMovedKeyKeepsCounts moves a key that has used its limit onto overrides, lists and a
// document's overrides: what was used is kept, as it is under a changed limit.
func TestMovedKeyKeepsCounts(t *testing.T) {
	srv := redistest.Start(t)
	gone := redistest.Start(t)
	gone.Kill()
	for name, app := range map[string]string{
		"local": "", "redis": redisStore(srv.Addr, "timeout 10s"), "alone": redisStore(gone.Addr, "timeout 10s"),
	} {
		for _, algorithm := range []string{"fixed_window", "sliding_window", "sliding_log", "gcra"} {
			t.Run(name+"/"+algorithm, func(t *testing.T) {
				srv.Client().FlushAll(t.Context())
				moveKey(t, app, algorithm)
			})
		}
	}
}

func moveKey(t *testing.T, app, algorithm string) {
	r := &ruledSite{path: filepath.Join(t.TempDir(), "rules.json")}
	admitted := 0
	for _, m := range moves {
		c := setup{app: app + "rules file " + r.path, site: "rate_limit {\nzone z {\nrule 10/1h " + algorithm + "\n" + strings.ReplaceAll(m.override, "%s", algorithm) + "\n}\n}\nrespond ok"}
		if r.site == nil {
			r.site = serve(t, c)
		} else {
			r.reload(c)
		}
		r.apply(strings.ReplaceAll(m.document, "%s", algorithm))
		for range 12 {
			if r.send(req{}).status == 200 {
				admitted++
			}
		}
		t.Logf("%d admitted until %s", admitted, m.name)
	}
	if admitted != 10 {
		t.Errorf("%d requests admitted in a window of 10", admitted)
	}
}
