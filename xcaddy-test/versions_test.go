package xcaddytest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// versionsLimit is how many requests each rule of TestTwoVersions admits. None of them is given back
// while the test runs.
const versionsLimit = 10

// versionsRules are the rules of TestTwoVersions: one of each algorithm.
var versionsRules = map[string]string{
	"fixed_window":   "10/10h fixed_window",
	"sliding_log":    "10/10h sliding_log",
	"sliding_window": "10/10h sliding_window",
	"token_bucket":   "10/10h token_bucket",
	"leaky_bucket":   "10/10h leaky_bucket nodelay",
	"gcra":           "10/10h gcra burst 10",
	"calendar":       "10/year calendar",
}

// fleet are the instances that share a Redis.
type fleet []*harness.Caddy

// TestTwoVersions replaces the instances of a fleet one by one: the version before, which DIANA_BEFORE
// names, by this one, and one of them by the version before again. What was used up, blocked and written
// before is kept, but for the local store, whose counts end with their process. While both versions run,
// they count, hold, block, reset and follow documents together, and share the limits in an outage in which Redis
// loses its memory.
//
// Without DIANA_BEFORE, as in make test, both are this version, and only one is replaced. .ci/versions
// builds the version before.
func TestTwoVersions(t *testing.T) {
	t.Parallel()
	before := cmp.Or(os.Getenv("DIANA_BEFORE"), harness.Binary())
	redis, up := harness.StartRedis(t), startUpstream(t)
	defer func() { redis.Expire(context.Background(), "diana:rules", time.Hour) }() // as every other key does
	config := harness.Config{
		Global: onRedisWith(redis, "rules redis diana:rules {\ninterval 1h\n}", "timeout 10s"), Site: versionsSite(up.Listener.Addr().String()),
	}
	all := fleet{harness.StartProgram(t, before, config), harness.StartProgram(t, before, config)}
	all.useUp(t, "before")
	local := func(want ...int) {
		t.Helper()
		for i, status := range want {
			if got := all[1].Get(t, "/local?k=a").Status; got != status {
				t.Errorf("request %d of the local store: status %d, want %d", i+1, got, status)
			}
		}
	}
	local(200, 200, 429)

	all.replace(t, 1, harness.Binary(), up, "before")
	local(200)
	all.useUp(t, "mixed")
	all.share(t, redis, up, "mixed")
	if before == harness.Binary() {
		return
	}
	all.replace(t, 0, harness.Binary(), up, "mixed")
	all.useUp(t, "after")
	all.replace(t, 0, before, up, "after") // a downgrade
}

// TestVersionsNeedHistory checks that .ci/versions says what to do in a clone without the version before.
func TestVersionsNeedHistory(t *testing.T) {
	out, err := harness.Program(t, "bash", "../.ci/versions", strings.Repeat("0", 40)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "git fetch --unshallow") {
		t.Errorf("%v: %s", err, out)
	}
}

// versionsSite is a site with a zone for each thing that instances share.
func versionsSite(upstream string) string {
	var site strings.Builder
	zone := func(name string, lines ...string) {
		fmt.Fprintf(&site, "\trate_limit /%[1]s* {\n\t\tzone %[1]s {\n\t\t\tkey {query.k}\n\t\t\t%[2]s\n\t\t}\n\t}\n", name, strings.Join(lines, "\n\t\t\t"))
	}
	for name, rule := range versionsRules {
		zone(name, "rule "+rule)
	}
	zone("slow", "in_flight 3")
	zone("login", "count_status 401", "rule 3/15m block 1h")
	zone("held", "cost 5", "settle {http.response.header.X-Tokens}", "hold", "rule 10/10h fixed_window")
	zone("duplicates", "prevent_duplicates 1h")
	zone("document", "rule 90000/1h sliding_window")
	zone("alone", "rule 10/10h fixed_window")
	zone("local", "rule 2/10h", "store local")
	fmt.Fprintf(&site, "\theader /held X-Tokens 1\n\trespond /login wrong 401\n\t@rest not path /slow /login\n\trespond @rest ok\n\treverse_proxy %s", upstream)
	return site.String()
}

// replace replaces an instance by another program, while the other instance has all permits of a key, and
// checks what is kept of the key.
func (all fleet) replace(t *testing.T, i int, program string, up *upstream, key string) {
	t.Helper()
	ended := make(chan int)
	for range 3 {
		go func() { ended <- harness.Shoot(harness.Client(1), all[1-i].URL+"/slow?k=held-"+key).Status }()
		up.enters(t, harness.Patience)
	}
	all[i].Replace(t, program)
	if status := all[i].Get(t, "/slow/probe?k=held-"+key).Status; status != 429 {
		t.Errorf("%s: a fourth request in flight: status %d, want 429", key, status)
	}
	for range 3 {
		up.goOn <- true
		if status := <-ended; status != 200 {
			t.Errorf("%s: a request in flight: status %d, want 200", key, status)
		}
	}
	all.wantKept(t, key)
}

// useUp uses up what all instances limit together of a key, and gives each of them a document.
func (all fleet) useUp(t *testing.T, key string) {
	t.Helper()
	for name := range versionsRules {
		all.count(t, name, key)
	}
	all.block(t, key)
	all.documents(t, key)
	all.wantKept(t, key)
}

// share checks the rest of what all instances share of a key whose limits are used up.
func (all fleet) share(t *testing.T, redis *harness.Redis, up *upstream, key string) {
	t.Helper()
	for name := range versionsRules {
		all.reset(t, name, key)
		all.count(t, name, key)
	}
	all.hold(t, key)
	all.permits(t, up, key)
	for i, c := range all {
		answer := harness.Do(t, http.MethodPost, c.URL+"/duplicates?k="+key, "")
		if want := []int{200, 429}[min(i, 1)]; answer.Status != want {
			t.Errorf("%s: the same request at instance %d: status %d, want %d", key, i, answer.Status, want)
		}
	}
	all.outage(t, redis, key)
	all.documents(t, key) // Redis has lost that of before
	all.wantKept(t, key)
}

// remaining is what the header RateLimit of draft 10 says is left.
var remaining = regexp.MustCompile(`;r=(\d+)`)

// count uses a limit up by requests to all instances in turn, each of which is told what the requests
// to all have left.
func (all fleet) count(t *testing.T, zone, key string) {
	t.Helper()
	for i := range versionsLimit + len(all) {
		answer := all[i%len(all)].Get(t, "/"+zone+"?k="+key)
		left, want := -1, 200
		if i >= versionsLimit {
			want = 429
		}
		if m := remaining.FindStringSubmatch(answer.Header.Get("RateLimit")); m != nil {
			left, _ = strconv.Atoi(m[1])
		}
		if answer.Status != want || left != max(0, versionsLimit-1-i) {
			t.Fatalf("%s: request %d of %s: status %d, %d left, want %d and %d", key, i+1, zone, answer.Status, left, want, max(0, versionsLimit-1-i))
		}
	}
}

// reset resets a key that is used up at each instance in turn: all admit a request then.
func (all fleet) reset(t *testing.T, zone, key string) {
	t.Helper()
	forget := func(c *harness.Caddy) {
		answer := harness.Do(t, http.MethodDelete, c.Admin+"/rate_limit/zones/"+zone+"/key?part="+key, "")
		if !strings.Contains(answer.Body, `": "everywhere"`) {
			t.Fatalf("%s: reset of %s: %d %s", key, zone, answer.Status, answer.Body)
		}
	}
	for _, c := range all {
		forget(c)
		for i, c := range all { // a denial may be remembered until the message of the reset has come
			harness.Until(t, harness.Patience, fmt.Sprintf("%s: the reset of %s at instance %d", key, zone, i), func() bool {
				return c.Get(t, "/"+zone+"?k="+key).Status == http.StatusOK
			})
		}
	}
	forget(all[0])
}

// hold checks what is charged of costs that are held until the response: 1 each of 5.
func (all fleet) hold(t *testing.T, key string) {
	t.Helper()
	const admitted = versionsLimit - 5 + 1
	for i := range admitted + len(all) {
		want := 200
		if i >= admitted {
			want = 429
		}
		if status := all[i%len(all)].Get(t, "/held?k="+key).Status; status != want {
			t.Errorf("%s: held request %d: status %d, want %d", key, i+1, status, want)
		}
	}
}

// block checks that failures count together, and that all instances block the client then.
func (all fleet) block(t *testing.T, key string) {
	t.Helper()
	for i := range 3 {
		if status := all[i%len(all)].Get(t, "/login?k="+key).Status; status != 401 {
			t.Errorf("%s: failure %d: status %d, want 401", key, i+1, status)
		}
	}
	all.wantBlocked(t, key)
}

func (all fleet) wantBlocked(t *testing.T, key string) {
	t.Helper()
	for i, c := range all {
		answer := c.Get(t, "/login?k="+key)
		if after, _ := strconv.Atoi(answer.Header.Get("Retry-After")); answer.Status != 429 || after < 3000 {
			t.Errorf("%s: instance %d: status %d, Retry-After %d, want blocked for an hour", key, i, answer.Status, after)
		}
	}
}

// permits checks that requests in flight at all instances count together, and that a permit that one
// releases is free at the others.
func (all fleet) permits(t *testing.T, up *upstream, key string) {
	t.Helper()
	ended := make(chan int)
	open := func(c *harness.Caddy) {
		go func() { ended <- harness.Shoot(harness.Client(1), c.URL+"/slow?k="+key).Status }()
		up.enters(t, harness.Patience)
	}
	for i := range 3 {
		open(all[i%len(all)])
	}
	for i, c := range all {
		if status := c.Get(t, "/slow/probe?k="+key).Status; status != 429 {
			t.Errorf("%s: a fourth request in flight at instance %d: status %d, want 429", key, i, status)
		}
	}
	for i := range 3 { // one ends, and another instance has its permit
		up.goOn <- true
		<-ended
		open(all[(i+1)%len(all)])
	}
	for range 3 {
		up.goOn <- true
		if status := <-ended; status != 200 {
			t.Errorf("%s: a request in flight: status %d, want 200", key, status)
		}
	}
}

// documents writes a document through each instance, which all follow.
func (all fleet) documents(t *testing.T, key string) {
	t.Helper()
	for i, c := range all {
		limit := 80_000 + 10*len(key) + i
		answer := harness.Do(t, http.MethodPut, c.Admin+"/rate_limit/rules", limitDocument("document", limit), "Content-Type", "application/json", "If-Match", "*")
		if answer.Status != http.StatusOK {
			t.Fatalf("%s: a document through instance %d: %d %s", key, i, answer.Status, answer.Body)
		}
		everywhere(t, all, "document", int64(limit), harness.Patience)
	}
}

// outage stops Redis, which loses its memory. Each instance enforces its share of the limits then, and
// all that they admit is charged afterwards.
func (all fleet) outage(t *testing.T, redis *harness.Redis, key string) {
	t.Helper()
	for i, c := range all {
		harness.Until(t, harness.Patience, fmt.Sprintf("%s: instance %d counts all", key, i), func() bool {
			n, _ := c.Metric(t, "caddy_rate_limit_instances")
			return int(n) == len(all)
		})
	}
	redis.Kill(t)
	for i, c := range all {
		harness.Until(t, harness.Patience, fmt.Sprintf("%s: instance %d goes on without Redis", key, i), func() bool {
			c.Get(t, "/document?k="+key)
			up, _ := c.Metric(t, "caddy_rate_limit_store_up")
			return up == 0
		})
	}
	charged := 0
	for i, c := range all {
		share, _ := c.Metric(t, "caddy_rate_limit_enforced_share")
		admitted := 0
		for _, status := range c.Statuses(t, "/alone?k="+key, versionsLimit) {
			if status == http.StatusOK {
				admitted++
			}
		}
		// A process that has just stopped counts for 5 s more.
		if want := int(share * versionsLimit); share*float64(len(all)) > 1 || admitted != want {
			t.Errorf("%s: instance %d admits %d alone with a share of %v, want %d", key, i, admitted, share, want)
		}
		charged += admitted
	}
	redis.Start(t)
	for i, c := range all {
		harness.Until(t, harness.Patience, fmt.Sprintf("%s: the %d that were admitted are charged, and told by instance %d", key, charged, i), func() bool {
			body := harness.Do(t, http.MethodGet, c.Admin+"/rate_limit/zones/alone/key?part="+key, "").Body
			return strings.Contains(body, `"mode": "shared"`) && strings.Contains(body, fmt.Sprintf(`"used": %d,`, charged))
		})
	}
}

// wantKept checks that what was used up of a key is, on all instances, and that a client is blocked.
func (all fleet) wantKept(t *testing.T, key string) {
	t.Helper()
	for name := range versionsRules {
		for i, c := range all {
			if status := c.Get(t, "/"+name+"?k="+key).Status; status != 429 {
				t.Errorf("%s: %s, used up, at instance %d: status %d, want 429", key, name, i, status)
			}
		}
	}
	all.wantBlocked(t, key)
	for i, c := range all {
		if limit, least := limitOf(t, c, "document"), int64(80_000); limit < least || limit > least+999 {
			t.Errorf("%s: instance %d has a limit of %d, want that of the document", key, i, limit)
		}
	}
}
