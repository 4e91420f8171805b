package test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// randomZones returns zones with random options, except those that depend on real
// time. The caller replaces STORE and TAG.
func randomZones(r *rand.Rand) string {
	var b strings.Builder
	for z := range 1 + r.IntN(3) {
		fmt.Fprintf(&b, "zone TAG%d {\nstore STORE%d\n", z, z)
		line := func(odds int, format string, args ...any) {
			if r.IntN(odds) == 0 {
				fmt.Fprintf(&b, format+"\n", args...)
			}
		}
		parts := 1 + r.IntN(2)
		key := strings.Join([]string{"{query.k}", "{client_ip}", "{query.l}"}[r.IntN(2):][:parts], " ")
		fmt.Fprintf(&b, "key %s\n", key)
		line(2, "key_missing %s", pick(r, "client_ip", "share", "skip", "deny"))
		line(3, "match path %s", pick(r, "/a*", "/b*"))
		line(4, "exempt query l=%d", r.IntN(3))
		prefix := pick(r, 0, 31, 32)
		if r.IntN(4) == 0 {
			fmt.Fprintf(&b, "ipv4_prefix %d\n", prefix)
		} else {
			prefix = 32
		}
		line(3, "shadow")
		line(4, "prevent_duplicates 1h %s", pick(r, "", "body"))
		line(4, "cost {query.c}")
		line(5, "in_flight 5")
		line(4, "override %s {\nrule %d/100h\n}", strings.NewReplacer("{query.k}", "1", "{client_ip}", "10.0.0.1", "{query.l}", "1").Replace(key), r.IntN(4))
		if prefix > 0 { // all addresses are one otherwise, which can be overridden once
			line(5, "override %s unlimited", map[bool]string{true: "2", false: "10.0.0.2"}[key[0:2] == "{q"]+strings.Repeat(" *", parts-1))
		}
		line(5, "respond %d", pick(r, 200, 418, 500))
		charge := r.IntN(6)
		if charge == 0 {
			fmt.Fprintf(&b, "count_status %s\n", pick(r, "200", "4xx", "200 4xx"))
		}
		if charge == 1 {
			fmt.Fprintf(&b, "settle {query.s}\n")
		}
		for range 1 + r.IntN(3) {
			alg := pick(r, "", "sliding_log", "sliding_window", "sliding_window buckets 3", "fixed_window", "gcra", "token_bucket", "leaky_bucket nodelay")
			if r.IntN(3) == 0 {
				alg = pick(r, "gcra burst 2", "token_bucket burst 3", "leaky_bucket nodelay burst 4")
			}
			fmt.Fprintf(&b, "rule %d/%dh %s\n", 2+r.IntN(12), 100*(1+r.IntN(3)), alg)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func randomRequest(r *rand.Rand) req {
	q := req{
		method: pick(r, "GET", "POST", "PUT"), ip: pick(r, "10.0.0.1", "10.0.0.2", "2001:db8::1"), body: pick(r, "", "x", "y"),
		path: pick(r, "/a", "/b", "/401") + fmt.Sprintf("?k=%s&l=%d", pick(r, "", "1", "2", "3", "10.0.0.1"), r.IntN(3)),
	}
	if r.IntN(2) == 0 {
		q.path += "&c=" + pick(r, "0", "2", "x", "99")
	}
	if r.IntN(2) == 0 {
		q.path += "&s=" + pick(r, "1", "3", "-1", "x")
	}
	return q
}

// TestStoresGiveSameResponses sends random requests to random zones in the local
// store, in Redis, and in both, and checks that the responses are equal, and the decisions that are counted.
func TestStoresGiveSameResponses(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("DIANA_SEED"); v != "" {
		seed, _ = strconv.ParseUint(v, 10, 64)
	}
	t.Logf("DIANA_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	srv := redistest.Start(t)
	for round := range 12 {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			zones := randomZones(r)
			tags := map[string][3]string{"l": {"local", "local", "local"}, "r": {"redis", "redis", "redis"}, "x": {"local", "redis", "local"}}
			handlers := ""
			for tag, in := range tags {
				name := tag + strconv.Itoa(round) + "-"
				handlers += "handle_path /" + tag + "/* {\nrate_limit {\n" + strings.NewReplacer(
					"TAG", name, "STORE0", in[0], "STORE1", in[1], "STORE2", in[2]).Replace(zones) + "}\nrespond /401 401\nrespond ok\n}\n"
			}
			s := serve(t, setup{app: redisStore(srv.Addr, "timeout 10s"), site: handlers})
			for i := range 60 {
				q := randomRequest(r)
				send := func(tag string) *answer {
					q := q
					q.path = "/" + tag + q.path
					return s.send(q)
				}
				l, rd, x := send("l"), send("r"), send("x")
				for _, other := range []*answer{rd, x} {
					if what := differ(l, other); what != "" && !deniedSooner(l, other) {
						t.Fatalf("request %d %+v: %s\nlocal %v\nother %v\n%s", i, q, what, l, other, zones)
					}
				}
			}
			decided := decisions(t, s)
			for zone, want := range decided {
				name, local := strings.CutPrefix(zone, "l")
				for _, tag := range []string{"r", "x"} {
					if got := decided[tag+name]; local && !maps.Equal(got, want) {
						t.Errorf("zone %s: decisions %v, in the local store %v\n%s", tag+name, got, want, zones)
					}
				}
			}
		})
	}
	srv.CheckTTLs()
}

// deniedSooner reports whether both were denied and the Retry-After of other is no
// longer than that of a.
func deniedSooner(a, other *answer) bool {
	return wasDenied(a) && wasDenied(other) && retryAfter(other) <= retryAfter(a)
}

func wasDenied(a *answer) bool { return a.get("Cache-Control") != "" }

// retryAfter returns the Retry-After of a denial. A denial without a call
// says what was known of other instances then; more rules may deny by now.
func retryAfter(a *answer) int {
	n, _ := strconv.Atoi(a.get("Retry-After"))
	return n
}

var (
	zoneTags = regexp.MustCompile(`"[lrx]\d+-`)
	numbers  = regexp.MustCompile(`t=(\d+)`)
)

// differ returns the first difference between two responses, ignoring the names of
// zones and a second of elapsed time, or "".
func differ(a, b *answer) string {
	if a.status != b.status {
		return fmt.Sprintf("status %d and %d", a.status, b.status)
	}
	for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
		x, y := zoneTags.ReplaceAllString(a.get(name), `"`), zoneTags.ReplaceAllString(b.get(name), `"`)
		if numbers.ReplaceAllString(x, "") != numbers.ReplaceAllString(y, "") {
			return fmt.Sprintf("%s %q and %q", name, x, y)
		}
		for i, t := range numbers.FindAllStringSubmatch(x, -1) {
			if !near(t[1], numbers.FindAllStringSubmatch(y, -1)[i][1]) {
				return fmt.Sprintf("%s %q and %q", name, x, y)
			}
		}
	}
	if !near(a.get("Retry-After"), b.get("Retry-After")) {
		return fmt.Sprintf("Retry-After %q and %q", a.get("Retry-After"), b.get("Retry-After"))
	}
	return ""
}

// near reports whether two numbers of seconds are equal but for the time between
// two requests. The parts of a window begin at multiples of the clock.
func near(a, b string) bool {
	if a == b {
		return true
	}
	x, err := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	return err == nil && err2 == nil && x-y <= 5 && y-x <= 5
}
