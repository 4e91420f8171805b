package main

import (
	"fmt"
	"math"
	"strings"
)

// rows returns the rows of the table, in the order of the goals.
func rows(s samples) []row {
	var all []row
	for _, part := range []func(samples) []row{inProcess, growth, memory, peers, redis, http, denied, leased, latency} {
		all = append(all, part(s)...)
	}
	return all
}

const cpu = "cpu-ns/op"

// inProcess returns the cost of one request in process, with the complete handler.
func inProcess(s samples) []row {
	var all []row
	for _, v := range []struct{ name, what, goal string }{
		{"Allow/gcra", "gcra", "≤ 250 ns, 0 allocs"},
		{"Allow/sliding_window", "sliding_window", "≤ 350 ns, 0"},
		{"Allow/three_rules", "three rules mixed", "≤ 500 ns, 0"},
		{"Allow/fixed_window", "fixed_window", ""},
		{"Allow/token_bucket", "token_bucket", ""},
		{"Allow/leaky_bucket", "leaky_bucket nodelay", ""},
		{"Allow/sliding_log", "sliding_log", ""},
		{"Allow/six_rules", "all six algorithms", ""},
	} {
		all = append(all, row{"in process, allowed, " + v.what, perCall(s, v.name), "", v.goal})
	}
	for _, v := range []struct{ name, than, what, goal string }{
		{"Allow/gcra/headers=draft", "Allow/gcra", "in process, allowed, gcra, headers draft", "≤ +300 ns, ≤ 4 allocs"},
		{"AllowZones/zones=2", "AllowZones/zones=1", "in process, allowed, two zones of gcra", ""},
		{"AllowZones/zones=4", "AllowZones/zones=1", "in process, allowed, four zones of gcra", ""},
		{"Deny/gcra", "Allow/gcra", "in process, denied, gcra", "≤ 700 ns, ≤ 4 allocs"},
	} {
		more := s.paired(v.name, v.than, cpu, difference)
		all = append(all, row{v.what, perCall(s, v.name), number(more, "%+.0f ns"), v.goal})
	}
	return all
}

// perCall formats the time and the allocations of one call.
func perCall(s samples, name string) string {
	return number(s.median(name, cpu), "%.0f ns") + ", " + number(s.median(name, "allocs/op"), "%.0f allocs") +
		number(s.median(name, "B/op"), " (%.0f B)")
}

// growth returns the effect of more processors and more keys.
func growth(s samples) []row {
	one, two := "AllowParallel/gcra@1", "AllowParallel/gcra@2"
	faster := s.paired(one, two, "ns/op", ratio)
	// CPU time, unlike elapsed time, does not include other programs.
	could := 2 * s.median(one, cpu) / s.median(two, cpu)
	small, big := "Table/keys=10k/decide", "Table/keys=10M/decide"
	floor := s.median("Table/keys=0/gc", cpu) / 1e6
	return []row{
		{
			"in process, allowed, gcra, two cores", number(1e9/s.median(two, "ns/op"), "%.0f decisions/s"),
			number(faster, "%.2f times one core") + number(could, "; %.2f by CPU time"), "≥ 1.7 times",
		},
		{
			"store alone, 10 million keys", number(s.median(big, cpu), "%.0f ns a decision"),
			number(s.paired(big, small, cpu, ratio), "%.1f times 10 thousand keys") +
				number(s.median("Table/keys=10M/floor", cpu), "; %.0f ns are two waits for memory") +
				number(s.paired("Table/keys=10M/map", "Table/keys=10k/map", cpu, ratio), "; a map of Go: %.1f times"), "≤ 3 times",
		},
		{
			"store alone, 10 million keys, a shard grows", number(s.median("Table/keys=10M/grow", cpu)/1e3, "%.0f us"),
			"the longest that a request waits for a new key", "",
		},
		{
			"full GC, 10 million keys", number(s.median("Table/keys=10M/gc", cpu)/1e6, "%.1f ms CPU"),
			number(s.median("Table/keys=10M/gc", cpu)/1e6-floor, "%+.1f ms beside none"), "≤ +2 ms",
		},
	}
}

func memory(s samples) []row {
	var all []row
	for _, v := range []struct{ name, goal string }{
		{"gcra", "≤ 64 B"}, {"fixed_window", "≤ 56 B"}, {"sliding_window", "≤ 128 B"},
	} {
		one, ten := s.median("Memory/"+v.name+"/keys=1M", "B/key"), s.median("Memory/"+v.name+"/keys=10M", "B/key")
		beside := ""
		if !math.IsNaN(ten) {
			beside = number(ten, "%.1f B at 10 million")
		}
		all = append(all, row{"memory per key, " + v.name, number(one, "%.1f B at 1 million"), beside, v.goal})
	}
	return all
}

// peers compares limiters in process with the same requests.
func peers(s samples) []row {
	var all []row
	for _, v := range []struct{ name, what string }{
		{"diana", "Diana, the whole handler"},
		{"mholt", "mholt/caddy-ratelimit, the whole handler"},
		{"x-time-rate", "x/time/rate in a map"},
		{"throttled", "throttled"},
		{"go-limiter", "sethvargo/go-limiter"},
		{"bare", "none"},
	} {
		r := row{what: "peers: " + v.what, figure: "allowed " + perCall(s, "PeersAllow/"+v.name)}
		if v.name != "bare" {
			r.beside = "denied " + perCall(s, "PeersDeny/"+v.name) + number(s.median("PeersMemory/"+v.name, "B/key"), "; %.0f B a key")
		}
		all = append(all, r)
	}
	return all
}

// redis returns the cost of a decision in Redis.
func redis(s samples) []row {
	var all []row
	for _, v := range []struct{ name, what, goal string }{
		{"noop/alone", "a script that does nothing", ""},
		{"gcra/alone", "gcra, one at a time", "≤ 6.5 us"},
		{"gcra/pipelined=32", "gcra, 32 calls in a pipeline", ""},
		{"gcra/together=32", "gcra, 32 together", "≤ 4 us"},
		{"sliding_window/alone", "sliding_window", "≤ 9 us"},
		{"sliding_window/pipelined=32", "sliding_window, 32 calls in a pipeline", ""},
		{"sliding_window/together=32", "sliding_window, 32 together", ""},
		{"three_rules/alone", "three rules mixed", "≤ 10 us"},
		{"three_rules/pipelined=32", "three rules mixed, 32 calls in a pipeline", ""},
		{"three_rules/together=32", "three rules mixed, 32 together", ""},
		{"eight_rules/alone", "eight rules mixed", "≤ 15 us"},
		{"eight_rules/pipelined=32", "eight rules mixed, 32 calls in a pipeline", ""},
		{"eight_rules/together=32", "eight rules mixed, 32 together", ""},
	} {
		name := "Redis/" + v.name
		all = append(all, row{
			"Redis' own time, " + v.what, number(s.median(name, "redis-us/op"), "%.1f us"),
			number(s.median(name, "redis-cpu-us/op"), "%.1f us CPU of the server"), v.goal,
		})
	}
	together, pipelined := "Redis/gcra/together=32", "Redis/gcra/pipelined=32"
	return append(all, row{
		"one Redis core, gcra, 32 together", number(1e6/s.median(together, "redis-cpu-us/op"), "%.0f decisions/s"),
		number(s.paired(pipelined, together, "redis-cpu-us/op", ratio), "%.2f times pipelined calls"), "≥ 220000, ≥ 1.6 times",
	}, row{
		"one Redis core, gcra, 512 callers", number(1e6/s.median("RedisCallers/gcra/callers=512", "redis-cpu-us/op"), "%.0f decisions/s"),
		number(s.median("RedisCallers/gcra/callers=512", "redis-calls/op"), "%.3f calls a decision"), "",
	})
}

// http compares a Caddy under load with a bare site in the same process.
func http(s samples) []row {
	var all []row
	for _, v := range []struct{ name, beside, what, goal string }{
		{"bare", "", "bare Caddy", ""},
		{"bare-again", "bare", "bare Caddy, beside itself", ""},
		{"floor-nothing", "bare-peers", "a handler that does nothing", ""},
		{"local", "bare", "Diana, local, headers off", "≤ +1.0 us"},
		{"local-draft", "bare", "Diana, local, headers draft", "≤ +2.0 us"},
		{"mholt", "bare-mholt", "mholt/caddy-ratelimit", ""},
		{"redis-gcra", "bare-redis", "Diana, Redis, gcra", "≤ +18 us, ≥ 65%"},
		{"redis-sliding_window", "bare-redis", "Diana, Redis, sliding_window", "≤ +20 us, ≥ 62%"},
		{"floor-shared", "bare-peers", "a handler that shares calls of a script of one word", ""},
		{"redis_rate", "bare-peers", "go-redis/redis_rate", ""},
		{"redis_rate-autopipeline", "bare-peers", "go-redis/redis_rate with AutoPipeline", ""},
		{"redis_rate-full_duplex", "bare-peers", "go-redis/redis_rate with AutoPipeline, FullDuplex", ""},
	} {
		all = append(all, row{"HTTP, " + v.what, underLoad(s, v.name), besideBare(s, v.name, v.beside), v.goal})
	}
	return all
}

// denied compares the denial of a client over its limit with that by a handler that
// only denies.
func denied(s samples) []row {
	var all []row
	for _, v := range []struct{ name, beside, what, goal string }{
		{"bare-denied", "bare", "Caddy's own error 429", ""},
		{"floor-error", "bare-peers", "a handler that returns an error 429", ""},
		{"local-denied", "bare", "Diana, local, hot key denied", ""},
		{"redis-denied", "bare-redis", "Diana, Redis, hot key denied", "≤ +2 us, ≤ 0.01 calls"},
	} {
		r := row{"HTTP, " + v.what, underLoad(s, v.name), besideBare(s, v.name, v.beside), v.goal}
		if v.name == "local-denied" {
			r.beside += "; " + more(s.pairs("HTTP/"+v.name, "HTTP/bare-denied", "cpu-us/op", difference)) + " beside error 429"
		}
		if calls := s.median("HTTP/"+v.name, "redis-calls/op"); !math.IsNaN(calls) {
			r.beside += number(calls, "; %.3f Redis calls a request")
		}
		all = append(all, r)
	}
	return all
}

// leased returns the cost for an admitted client whose limit three instances lease.
func leased(s samples) []row {
	name, goal := "redis-leased", "≤ +2 us, ≤ 0.02 calls"
	return []row{
		{"HTTP, three instances, bare Caddy", underLoad(s, "bare-three"), "", ""},
		{"HTTP, three instances, Diana, Redis, hot key allowed, lease 50ms", underLoad(s, name), besideBare(s, name, "bare-three") +
			number(s.median("HTTP/"+name, "redis-calls/op"), "; %.3f Redis calls a request"), goal},
	}
}

func underLoad(s samples, name string) string {
	name = "HTTP/" + name
	parts := []string{number(s.median(name, "cpu-us/op"), "%.1f us CPU")}
	if of := s.median(name, "redis-cpu-us/op"); !math.IsNaN(of) {
		parts[0] += number(of, " (Redis %.1f)")
	}
	return strings.Join(append(parts,
		number(s.median(name, "req/s"), "%.0f req/s"),
		number(s.median(name, "p50-us")/1e3, "p50 %.2f ms"),
		number(s.median(name, "p99-us")/1e3, "p99 %.2f ms")), ", ")
}

func besideBare(s samples, name, bare string) string {
	if bare == "" {
		return ""
	}
	return more(s.pairs("HTTP/"+name, "HTTP/"+bare, "cpu-us/op", difference)) +
		number(100*s.paired("HTTP/"+name, "HTTP/"+bare, "req/s", ratio), ", %.0f%% req/s of bare")
}

// more formats a difference in microseconds with its confidence interval.
func more(all []float64) string {
	text := number(median(all), "%+.1f us")
	if low, high := interval(all); !math.IsNaN(low) {
		text += fmt.Sprintf(" (%+.1f to %+.1f)", low, high)
	}
	return text
}

// latency returns the latency of sequential requests.
func latency(s samples) []row {
	ping := s.median("Latency/ping", "p50-us")
	least := s.paired("Latency/floor-script", "Latency/bare-peers", "p50-us", difference)
	all := []row{{"one connection, Redis PING", number(ping, "p50 %.0f us"), "", ""}}
	for _, v := range []struct{ name, beside, what, goal string }{
		{"bare", "", "bare Caddy", ""},
		{"local", "bare", "Diana, local", ""},
		{"floor-ping", "bare-peers", "a handler that asks Redis for a PING", ""},
		{"floor-script", "bare-peers", "a handler that asks Redis for a script of one word", ""},
		{"redis-gcra", "bare-redis", "Diana, Redis, gcra", "≤ 1.2 PINGs"},
		{"redis_rate", "bare-peers", "go-redis/redis_rate", ""},
		{"redis_rate-autopipeline", "bare-peers", "go-redis/redis_rate with AutoPipeline", ""},
		{"redis_rate-full_duplex", "bare-peers", "go-redis/redis_rate with AutoPipeline, FullDuplex", ""},
	} {
		r := row{"one connection, " + v.what, number(s.median("Latency/"+v.name, "p50-us"), "p50 %.0f us"), "", v.goal}
		if v.beside != "" {
			all := s.pairs("Latency/"+v.name, "Latency/"+v.beside, "p50-us", difference)
			r.beside = more(all) + number(median(all)/ping, ", %.1f PINGs") + number(median(all)/least, ", %.1f scripts in a Caddy")
		}
		all = append(all, r)
	}
	return all
}

const notMeasured = "not measured"

// number formats a figure, or reports that it is missing.
func number(v float64, format string) string {
	if math.IsNaN(v) {
		return notMeasured
	}
	return fmt.Sprintf(format, v)
}
