package test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/testkit/benchtest"
)

// The benchmarks' rules admit every request that a benchmark can send.
const (
	ruleGCRA          = `{"limit":1000000,"window":"1s","algorithm":{"name":"gcra"}}`
	ruleSlidingWindow = `{"limit":1000000,"window":"1s","algorithm":{"name":"sliding_window","buckets":10}}`
	ruleFixedWindow   = `{"limit":1000000,"window":"1s","algorithm":{"name":"fixed_window"}}`
	ruleTokenBucket   = `{"limit":1000000,"window":"1s","algorithm":{"name":"token_bucket"}}`
	ruleLeakyBucket   = `{"limit":1000000,"window":"1s","algorithm":{"name":"leaky_bucket","nodelay":true}}`
	// A log holds the requests of its window: about 40 at full speed.
	ruleSlidingLog = `{"limit":1000,"window":"100ms","algorithm":{"name":"sliding_log"}}`

	ruleOnce = `{"limit":1,"window":"10h","algorithm":{"name":"gcra"}}`
)

// benchHandler returns a handler that has one zone with the given rules.
func benchHandler(b *testing.B, headers string, rules ...string) caddyhttp.MiddlewareHandler {
	b.Helper()
	config := fmt.Sprintf(`{"headers":%q,"zones":[{"name":"bench","key":["{header.X-Key}"],"rules":[%s]}]}`,
		headers, strings.Join(rules, ","))
	return benchtest.Handler(b, "rate_limit", config, nil)
}

func BenchmarkAllow(b *testing.B) {
	keys := benchtest.Keys(benchtest.Clients)
	three := []string{ruleGCRA, ruleSlidingWindow, ruleFixedWindow}
	for _, v := range []struct {
		name, headers string
		rules         []string
	}{
		{"gcra", "off", []string{ruleGCRA}},
		{"sliding_window", "off", []string{ruleSlidingWindow}},
		{"fixed_window", "off", []string{ruleFixedWindow}},
		{"token_bucket", "off", []string{ruleTokenBucket}},
		{"leaky_bucket", "off", []string{ruleLeakyBucket}},
		{"sliding_log", "off", []string{ruleSlidingLog}},
		{"three_rules", "off", three},
		{"six_rules", "off", append(three, ruleTokenBucket, ruleLeakyBucket, ruleSlidingLog)},
		{"gcra/headers=draft", "draft", []string{ruleGCRA}},
		{"three_rules/headers=draft", "draft", three},
	} {
		b.Run(v.name, func(b *testing.B) {
			benchtest.Allow(b, benchHandler(b, v.headers, v.rules...), keys)
		})
	}
}

// BenchmarkAllowInFlight compares in_flight with a limit that is given and with one that is found.
func BenchmarkAllowInFlight(b *testing.B) {
	keys := benchtest.Keys(benchtest.Clients)
	for _, v := range []struct{ name, option string }{
		{"fixed", `"in_flight":1000`},
		{"adaptive", `"in_flight_adaptive":{}`},
		{"adaptive/max_wait", `"in_flight_adaptive":{},"max_wait":"1s"`},
		{"adaptive/priority", `"in_flight_adaptive":{"priority":"{header.X-Key}"},"max_wait":"1s"`},
	} {
		for _, more := range []struct{ name, headers, rules string }{{"", "off", ""}, {"/gcra", "off", `,"rules":[` + ruleGCRA + `]`}, {"/gcra/headers=draft", "draft", `,"rules":[` + ruleGCRA + `]`}} {
			b.Run(v.name+more.name, func(b *testing.B) {
				h := benchtest.Handler(b, "rate_limit", `{"headers":"`+more.headers+`","zones":[{"name":"bench","key":["{header.X-Key}"],`+v.option+more.rules+`}]}`, nil)
				benchtest.Allow(b, h, keys)
			})
		}
	}
}

// BenchmarkAllowZones measures the cost of each additional zone of a handler.
func BenchmarkAllowZones(b *testing.B) {
	keys := benchtest.Keys(benchtest.Clients)
	for _, n := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("zones=%d", n), func(b *testing.B) {
			zones := make([]string, n)
			for i := range zones {
				zones[i] = fmt.Sprintf(`{"name":"bench%d","key":["{header.X-Key}"],"rules":[%s]}`, i, ruleGCRA)
			}
			config := fmt.Sprintf(`{"headers":"off","zones":[%s]}`, strings.Join(zones, ","))
			benchtest.Allow(b, benchtest.Handler(b, "rate_limit", config, nil), keys)
		})
	}
}

// BenchmarkAllowRules measures the cost of each additional rule of a zone.
func BenchmarkAllowRules(b *testing.B) {
	keys := benchtest.Keys(benchtest.Clients)
	kinds := []string{ruleGCRA, ruleSlidingWindow, ruleFixedWindow, ruleTokenBucket}
	for _, n := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			rules := make([]string, n)
			for i := range rules {
				rules[i] = kinds[i%len(kinds)]
			}
			benchtest.Allow(b, benchHandler(b, "off", rules...), keys)
		})
	}
}

// BenchmarkAllowParallel is meant for -cpu 1,2: contention on counters and locks
// shows as less than twice the decisions per second.
func BenchmarkAllowParallel(b *testing.B) {
	keys := benchtest.Keys(benchtest.Clients)
	b.Run("gcra", func(b *testing.B) {
		benchtest.AllowParallel(b, benchHandler(b, "off", ruleGCRA), keys)
	})
	b.Run("gcra/headers=draft", func(b *testing.B) {
		benchtest.AllowParallel(b, benchHandler(b, "draft", ruleGCRA), keys)
	})
}

// BenchmarkDeny measures the denial of a single client.
func BenchmarkDeny(b *testing.B) {
	b.Run("gcra", func(b *testing.B) { benchtest.Deny(b, benchHandler(b, "off", ruleOnce)) })
	b.Run("gcra/headers=draft", func(b *testing.B) { benchtest.Deny(b, benchHandler(b, "draft", ruleOnce)) })
}

// BenchmarkDenyParallel measures the denial of a single client on all processors,
// which contend for one lock.
func BenchmarkDenyParallel(b *testing.B) {
	b.Run("gcra", func(b *testing.B) { benchtest.DenyParallel(b, benchHandler(b, "off", ruleOnce)) })
}

// BenchmarkBlock measures a rule that blocks, in requests that it admits and in those of a key
// that is blocked, beside the same rule without.
func BenchmarkBlock(b *testing.B) {
	keys := benchtest.Keys(benchtest.Clients)
	for _, block := range []string{"0s", "1h"} {
		rule := func(limit int) string {
			return fmt.Sprintf(`{"limit":%d,"window":"1s","block":%q,"algorithm":{"name":"gcra"}}`, limit, block)
		}
		b.Run("allow/block="+block, func(b *testing.B) {
			benchtest.Allow(b, benchHandler(b, "off", rule(1_000_000)), keys)
		})
	}
	for _, rule := range []string{ruleOnce, strings.Replace(ruleOnce, `{`, `{"block":"20h",`, 1)} {
		b.Run(fmt.Sprintf("deny/block=%v", strings.Contains(rule, "block")), func(b *testing.B) {
			benchtest.Deny(b, benchHandler(b, "off", rule))
		})
	}
}

// BenchmarkAllowBody measures a key that is a field of a body of 100 bytes, beside one that
// is a header of the same request.
func BenchmarkAllowBody(b *testing.B) {
	const text = `{"name":"A. Reader","phone":"+49 30 1234567","lang":"en","consent":true,"source":"signup","plan":1}`
	for _, key := range []string{"{header.X-Key}", "{body.phone}"} {
		b.Run("key="+strings.Trim(key, "{}"), func(b *testing.B) {
			h := benchtest.Handler(b, "rate_limit", fmt.Sprintf(`{"headers":"off","zones":[{"name":"bench","key":[%q],"key_missing":"deny","rules":[%s]}]}`, key, ruleGCRA), nil)
			next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
			r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Key", "+49 30 1234567")
			w := httptest.NewRecorder()
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
			r.ContentLength = int64(len(text))
			body := strings.NewReader("")
			b.ReportAllocs()
			for b.Loop() {
				body.Reset(text)
				r.Body = io.NopCloser(body)
				if err := h.ServeHTTP(w, r, next); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
