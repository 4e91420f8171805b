package xcaddytest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestChangedRuleAppliesToNextRequest changes a running limit in three ways: by POST
// /load of a Caddyfile, by POST /load of JSON, and by PATCH of one number. Each
// change applies to the next request and keeps the counts.
func TestChangedRuleAppliesToNextRequest(t *testing.T) {
	redis := harness.StartRedis(t)
	for _, store := range []string{"redis", "local"} {
		for _, algorithm := range []string{"sliding_log", "sliding_window buckets 2", "fixed_window", "gcra", "token_bucket"} {
			t.Run(store+" "+algorithm, func(t *testing.T) {
				changeLimit(t, redis, store, algorithm)
			})
		}
	}
}

func changeLimit(t *testing.T, redis *harness.Redis, store, algorithm string) {
	config := func(limit int) harness.Config {
		return harness.Config{Global: onRedis(redis, "timeout 10s"), Site: fmt.Sprintf(
			"\trate_limit {\n\t\tzone %s {\n\t\t\tkey one\n\t\t\trule %d/10h %s\n\t\t\tstore %s\n\t\t}\n\t}\n\trespond ok",
			strings.Fields(algorithm)[0], limit, algorithm, store)}
	}
	caddy := harness.StartCaddy(t, config(4))
	wantPassing(t, caddy, "at first, 4 allowed", 4)

	text := config(6).Caddyfile(caddy.Admin[len("http://"):], caddy.Port)
	load := harness.Do(t, http.MethodPost, caddy.Admin+"/load", text, "Content-Type", "text/caddyfile")
	if load.Status != http.StatusOK {
		t.Fatalf("load of a Caddyfile: %d %s", load.Status, load.Body)
	}
	wantPassing(t, caddy, "after POST /load of a Caddyfile with 6", 2)

	mustLoad(t, caddy, adaptedJSON(t, config(9).Caddyfile(caddy.Admin[len("http://"):], caddy.Port)))
	wantPassing(t, caddy, "after POST /load of JSON with 9", 3)

	limit := caddy.Admin + "/config" + harness.HandlerPath(t, caddy.Running(t)) + "/zones/0/rules/0/limit"
	patch := harness.Do(t, http.MethodPatch, limit, "10", "Content-Type", "application/json")
	if patch.Status != http.StatusOK {
		t.Fatalf("patch: %d %s", patch.Status, patch.Body)
	}
	wantPassing(t, caddy, "after PATCH to 10", 1)

	harness.Do(t, http.MethodPatch, limit, "3", "Content-Type", "application/json")
	wantPassing(t, caddy, "after PATCH to 3, below what was used", 0)
}

// TestPatchByID changes one limit by its @id in Caddy's API, as the recipe does: the counts stay.
func TestPatchByID(t *testing.T) {
	redis := harness.StartRedis(t)
	for _, store := range []string{"redis", "local"} {
		config := harness.Config{Global: onRedis(redis, "timeout 10s"), Site: fmt.Sprintf(
			"\trate_limit {\n\t\tzone id_%s {\n\t\t\tkey one\n\t\t\trule 4/10h\n\t\t\tstore %s\n\t\t}\n\t}\n\trespond ok", store, store)}
		caddy := harness.StartCaddy(t, config)
		wantPassing(t, caddy, store+" at first, 4 allowed", 4)
		all := adaptedJSON(t, config.Caddyfile(caddy.Admin[len("http://"):], caddy.Port))
		mustLoad(t, caddy, strings.Replace(all, `"limit":4`, `"@id":"api_limit","limit":4`, 1))
		for _, change := range []struct {
			path, body string
			more       int
		}{
			{"/id/api_limit/limit", "6", 2},
			{"/id/api_limit", `{"@id": "api_limit", "limit": 9, "window": "10h"}`, 3},
		} {
			if a := harness.Do(t, http.MethodPatch, caddy.Admin+change.path, change.body, "Content-Type", "application/json"); a.Status != http.StatusOK {
				t.Fatalf("%s %s: %d %s", store, change.path, a.Status, a.Body)
			}
			wantPassing(t, caddy, store+" after PATCH of "+change.path, change.more)
		}
	}
}

// wantPassing fails the test unless exactly the first n of the next requests pass.
func wantPassing(t *testing.T, caddy *harness.Caddy, when string, n int) {
	t.Helper()
	want := slices.Concat(slices.Repeat([]int{http.StatusOK}, n), []int{http.StatusTooManyRequests, http.StatusTooManyRequests})
	if got := caddy.Statuses(t, "/", n+2); !slices.Equal(got, want) {
		t.Errorf("%s: statuses %v, want %v", when, got, want)
	}
}

// adaptedJSON returns the JSON that caddy adapt produces from a Caddyfile.
func adaptedJSON(t *testing.T, caddyfile string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(path, []byte(caddyfile), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := harness.Command(t, dir, "adapt", "--config", path)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("adapt: %v", err)
	}
	return string(out)
}
