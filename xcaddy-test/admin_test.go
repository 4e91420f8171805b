package xcaddytest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// soon is the maximum time for a push to be in force on all instances.
const soon = time.Second

const limitedSite = `	rate_limit /limited {
		zone api {
			key {query.k}
			rule 100000/1h sliding_window
		}
	}
	rate_limit /tight {
		zone tight {
			key {query.k}
			rule 3/1h
		}
	}
	respond ok`

// admin is the part of the admin API's report that the tests read.
type admin struct {
	Rules struct {
		Source, Error string
		Unknown       []string `json:"unknown_zones"`
	}
	Zones []struct {
		Name, Origin string
		Rules        []struct{ Limit int64 }
	}
}

func zonesOf(t *testing.T, c *harness.Caddy) (a admin) {
	t.Helper()
	got := harness.Do(t, http.MethodGet, c.Admin+"/rate_limit/zones", "")
	if err := json.Unmarshal([]byte(got.Body), &a); err != nil {
		t.Fatalf("status %d: %s", got.Status, got.Body)
	}
	return a
}

// limitOf returns the limit of the first active rule of a zone.
func limitOf(t *testing.T, c *harness.Caddy, zone string) int64 {
	t.Helper()
	for _, z := range zonesOf(t, c).Zones {
		if z.Name == zone {
			return z.Rules[0].Limit
		}
	}
	return 0
}

func limitDocument(zone string, limit int) string {
	return fmt.Sprintf(`{"zones": {%q: {"rules": [{"limit": %d, "window": "1h", "algorithm": {"name": "sliding_window"}}]}}}`, zone, limit)
}

// push stores a document in Redis and publishes the change.
func push(t *testing.T, r *harness.Redis, document string) {
	t.Helper()
	ctx := context.Background()
	if err := r.Set(ctx, "diana:rules", document, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(ctx, "diana:rules", "").Err(); err != nil {
		t.Fatal(err)
	}
}

// everywhere waits until a limit is in force on all instances and returns the time
// that took.
func everywhere(t *testing.T, all []*harness.Caddy, zone string, limit int64, within time.Duration) time.Duration {
	t.Helper()
	begun := time.Now()
	harness.Until(t, within, fmt.Sprintf("limit %d on all instances", limit), func() bool {
		for _, c := range all {
			if limitOf(t, c, zone) != limit {
				return false
			}
		}
		return true
	})
	return time.Since(begun)
}

// TestPushedRules checks that rules pushed under load are in force on three instances
// within a second and that no request is lost, denied or counted twice.
func TestPushedRules(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	all := startMany(t, 3, harness.Config{Global: onRedisWith(redis, "rules redis diana:rules {\ninterval 1h\n}", "timeout 10s"), Site: limitedSite})
	push(t, redis, `{"zones": {}}`)
	done := make(chan []harness.Shot)
	more, stop := untilStopped(t)
	go func() { done <- harness.Pace(200, more, urls(all, "/limited?k=a")...) }()
	for i := range 5 {
		limit := 90_000 + i
		push(t, redis, limitDocument("api", limit))
		took := everywhere(t, all, "api", int64(limit), 30*time.Second)
		t.Logf("push %d: in force on all after %v", i, took.Round(time.Millisecond))
		if took > soon {
			late(t, "push %d took %v, want at most %v", i, took, soon)
		}
		time.Sleep(100 * time.Millisecond) // send requests under each rule
	}
	stop()
	shots := <-done
	if ok := len(harness.With(http.StatusOK, shots)); ok != len(shots) {
		t.Errorf("%d of %d requests passed", ok, len(shots))
	}
	// The counts survive every change.
	var k struct {
		Rules []struct{ Limit, Remaining int64 }
	}
	got := harness.Do(t, http.MethodGet, all[0].Admin+"/rate_limit/zones/api/key?part=a", "")
	if err := json.Unmarshal([]byte(got.Body), &k); err != nil || len(k.Rules) != 1 {
		t.Fatal(got.Body)
	}
	if used := k.Rules[0].Limit - k.Rules[0].Remaining; used != int64(len(shots)) {
		t.Errorf("%d used of %d, want the %d requests that passed", used, k.Rules[0].Limit, len(shots))
	}

	// An invalid document changes nothing and is reported.
	push(t, redis, `{"zones": {"api": {"rules": [{"limit": 0, "window": "1h"}]}}}`)
	for _, c := range all {
		harness.Until(t, harness.Patience, "the error to be named", func() bool {
			return strings.HasPrefix(zonesOf(t, c).Rules.Error, "/zones/api/rules/0: limit 0: want at least 1")
		})
		if limit := limitOf(t, c, "api"); limit != 90_004 {
			t.Errorf("limit %d after an invalid document", limit)
		}
		if n, ok := c.Metric(t, "caddy_rate_limit_rules_errors_total"); !ok || n < 1 {
			t.Errorf("rules_errors_total: %v", n)
		}
		if _, ok := c.Metric(t, "caddy_rate_limit_rules_info", `zone="api"`, `source="redis"`); !ok {
			t.Error("no rules_info of zone api from redis")
		}
	}

	// Without the source, the last valid rules survive a restart, once a disk has taken them, for
	// which the end of a process waits two seconds.
	redis.Kill(t)
	for _, c := range all {
		harness.Until(t, harness.Patience, "the rules to be stored", func() bool { return strings.Contains(storedRules(t, c), "90004") })
		c.Restart(t)
		if limit := limitOf(t, c, "api"); limit != 90_004 {
			t.Errorf("limit %d after a restart without the source", limit)
		}
		if status := c.Get(t, "/limited?k=b").Status; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	redis.Start(t)
}

// storedRules returns the document in the storage of an instance; empty: there is none yet.
func storedRules(t *testing.T, c *harness.Caddy) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.Dir, "caddy/rate_limit/rules/*.json"))
	if err != nil || len(files) > 1 {
		t.Fatalf("stored rules: %v, %v; want one file", files, err)
	}
	if len(files) == 0 {
		return ""
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPolledRules checks that rules at a URL are in force within their interval.
func TestPolledRules(t *testing.T) {
	t.Parallel()
	const interval = 2 * time.Second
	var document atomic.Value
	document.Store(`{"zones": {}}`)
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, document.Load())
	}))
	defer source.Close()
	all := startMany(t, 3, harness.Config{
		Global: fmt.Sprintf("rate_limit {\nrules http %s {\ninterval %v\n}\n}", source.URL, interval), Site: limitedSite,
	})
	for i := range 3 {
		document.Store(limitDocument("api", 80_000+i))
		if took := everywhere(t, all, "api", int64(80_000+i), 30*time.Second); took > interval+soon {
			late(t, "took %v, want at most %v and %v", took, interval, soon)
		}
	}
	source.Close()
	for _, c := range all {
		c.Restart(t)
		if limit := limitOf(t, c, "api"); limit != 80_002 {
			t.Errorf("limit %d after a restart without the source", limit)
		}
	}
}

// rateLimit runs caddy rate-limit on an instance.
func rateLimit(t *testing.T, c *harness.Caddy, args ...string) string {
	t.Helper()
	args = append([]string{"rate-limit"}, append(args, "--address", strings.TrimPrefix(c.Admin, "http://"))...)
	out, err := harness.Command(t, t.TempDir(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("caddy %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestResetIsSeenEverywhere checks that every instance reports a limited key and that
// a reset on one instance frees it on all within a second.
func TestResetIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	all := startMany(t, 3, harness.Config{Global: onRedis(redis, "timeout 10s"), Site: limitedSite})
	for round := range 3 {
		for i, want := range []int{200, 200, 200, 429, 429, 429} {
			if got := all[i%3].Get(t, "/tight?k=a").Status; got != want {
				t.Fatalf("round %d, request %d: status %d, want %d", round, i, got, want)
			}
		}
		if out := rateLimit(t, all[0], "top", "tight"); !strings.Contains(out, "MOST DENIED") {
			t.Errorf("top:\n%s", out)
		}
		for _, c := range all {
			if out := rateLimit(t, c, "key", "tight", "a"); !strings.Contains(out, "denied by 1, again in ") || !strings.Contains(out, "3/1h   3     0     0  ") {
				t.Errorf("key:\n%s", out)
			}
			if out := rateLimit(t, c, "explain", c.URL+"/tight?k=a"); !strings.Contains(out, "denied by zone tight, rule 1, again in ") {
				t.Errorf("explain:\n%s", out)
			}
		}
		if out := rateLimit(t, all[round], "reset", "tight", "a"); !strings.Contains(out, "reset everywhere") {
			t.Errorf("reset:\n%s", out)
		}
		reset := time.Now()
		for _, c := range all {
			harness.Until(t, harness.Patience, "the key to be free", func() bool { return c.Get(t, "/tight?k=a").Status == http.StatusOK })
		}
		took := time.Since(reset)
		t.Logf("round %d: free on all instances %v after the answer to its reset", round, took.Round(time.Microsecond))
		if took > soon {
			late(t, "round %d: free after %v, want at most %v", round, took, soon)
		}
		rateLimit(t, all[0], "reset", "tight", "a")
		time.Sleep(100 * time.Millisecond) // let the message reach the others before the next round
	}

	// During an outage the reset is local, and its output says so.
	redis.Kill(t)
	harness.Until(t, harness.Patience, "the store to be down", func() bool {
		return strings.Contains(rateLimit(t, all[0], "zones"), "store redis: fallback for")
	})
	cmd := harness.Command(t, t.TempDir(), "rate-limit", "reset", "tight", "a", "--address", strings.TrimPrefix(all[0].Admin, "http://"))
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "reset in this instance") {
		t.Errorf("%v: %s", err, out)
	}
	redis.Start(t)
}

// TestResetKeepsDuplicates checks that a reset leaves the requests that prevent_duplicates
// remembers for a key, whichever instance admitted them.
func TestResetKeepsDuplicates(t *testing.T) {
	redis := harness.StartRedis(t)
	all := startMany(t, 3, harness.Config{Global: onRedis(redis, "timeout 10s"), Site: `	rate_limit {
		zone orders {
			key {query.k}
			prevent_duplicates 1h
		}
	}
	respond ok`})
	post := func(c *harness.Caddy, n int) int {
		return hostile(t, http.MethodPost, fmt.Sprint(c.URL, "/?k=a&n=", n), []string{"Host", "shop.example"}).StatusCode
	}
	for n, c := range all {
		if got := post(c, n); got != http.StatusOK {
			t.Fatalf("status %d", got)
		}
		if got := post(all[(n+1)%3], n); got != http.StatusTooManyRequests {
			t.Fatalf("a duplicate on another instance: status %d", got)
		}
	}
	if out := rateLimit(t, all[0], "reset", "orders", "a"); !strings.Contains(out, "reset everywhere") {
		t.Errorf("reset:\n%s", out)
	}
	for n, c := range all {
		if got := post(c, n); got != http.StatusTooManyRequests {
			t.Errorf("after the reset: status %d of a duplicate", got)
		}
	}
}

// TestCommandFindsAdminEndpoint checks that the commands read the admin endpoint's
// address from a configuration and print JSON.
func TestCommandFindsAdminEndpoint(t *testing.T) {
	c := harness.StartCaddy(t, harness.Config{Site: limitedSite})
	out, err := harness.Command(t, t.TempDir(), "rate-limit", "zones", "--json", "--config", c.Dir+"/Caddyfile", "--adapter", "caddyfile").Output()
	var a admin
	if err != nil || json.Unmarshal(out, &a) != nil || len(a.Zones) != 2 || a.Zones[0].Name != "api" {
		t.Fatalf("%v: %s", err, out)
	}
	out, err = harness.Command(t, t.TempDir(), "rate-limit", "key", "api", "--address", strings.TrimPrefix(c.Admin, "http://")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "0 parts: want 1") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestCrossOriginRequestsAreRejected checks that requests that another site makes a
// browser send are rejected, whatever the method.
func TestCrossOriginRequestsAreRejected(t *testing.T) {
	c := harness.StartCaddy(t, harness.Config{Site: limitedSite})
	for range 3 {
		c.Get(t, "/tight?k=a")
	}
	key := c.Admin + "/rate_limit/zones/tight/key?part=a"
	for _, headers := range [][]string{
		{"Origin", "https://evil.example"},
		{"Origin", "null"},
		{"Referer", "https://evil.example/page", "Sec-Fetch-Mode", "cors"},
		{"Sec-Fetch-Mode", "no-cors"},
		{"Host", "evil.example"},
		{"Origin", "https://evil.example", "Access-Control-Request-Method", "DELETE"},
	} {
		for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodOptions} {
			got := hostile(t, method, key, headers)
			if got.StatusCode != http.StatusForbidden && got.StatusCode != http.StatusBadRequest || got.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s with %v: status %d, %v", method, headers, got.StatusCode, got.Header)
			}
		}
	}
	if status := c.Get(t, "/tight?k=a").Status; status != http.StatusTooManyRequests {
		t.Errorf("status %d: the key was reset", status)
	}
}

func hostile(t *testing.T, method, url string, headers []string) *http.Response {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true // a reload closes what is kept
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}
