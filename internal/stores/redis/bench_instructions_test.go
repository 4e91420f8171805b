package redis

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// BenchmarkInstructions counts the instructions of the whole server per decision,
// which do not depend on the load of the machine. Redis runs in valgrind, which has
// to be installed. Every key was checked before.
//
//	go test -run '^$' -bench Instructions -benchtime 3200x ./internal/stores/redis
func BenchmarkInstructions(b *testing.B) {
	underCallgrind(b)
	for _, v := range []struct {
		name   string
		blocks bool
		rules  []storekit.BenchRule
	}{
		{"fixed_window", false, []storekit.BenchRule{storekit.BenchFixedWindow}},
		{"gcra", false, []storekit.BenchRule{storekit.BenchGCRA}},
		{"gcra_block", true, []storekit.BenchRule{storekit.BenchGCRA}},
		{"sliding_window", false, []storekit.BenchRule{storekit.BenchSlidingWindow}},
		{"sliding_log", false, []storekit.BenchRule{{Alg: new(algorithms.SlidingLog), Limit: 100_000, Window: time.Minute}}},
		{"small_log", false, []storekit.BenchRule{{Alg: new(algorithms.SlidingLog), Limit: 100, Window: time.Minute}}},
		{"three_rules", false, threeBenchRules},
		{"eight_rules", false, eightBenchRules},
	} {
		b.Run(v.name, func(b *testing.B) {
			r := newBenchRedis(b, v.name, 100, v.rules...)
			if v.blocks {
				r.counter = &stores.Counter{Terms: stores.Terms{Zone: v.name, Kinds: r.counter.Kinds, Algorithms: r.counter.Algorithms, Table: r.counter.Table}, Rules: r.counter.Rules}
				r.counter.Blocks, r.counter.Blocked = []int64{storekit.Hour}, memory.NewBlocks(1000)
			}
			if v.name == "fixed_window" {
				r.count(b, "noop", func(b *testing.B) { r.benchScript(b, "return 1") })
				r.count(b, "floor", func(b *testing.B) {
					r.benchScript(b, "redis.call('TIME') redis.call('GET', KEYS[1]) redis.call('SETRANGE', KEYS[1], '8', 'changed.') return 1")
				})
			}
			r.count(b, "alone", r.benchAlone)
			r.count(b, "together=32", r.benchTogether)
		})
	}
}

// underCallgrind makes servers that are started later run in valgrind.
func underCallgrind(tb testing.TB) {
	tb.Helper()
	if _, err := exec.LookPath("valgrind"); err != nil {
		tb.Fatalf("install valgrind: %v", err)
	}
	server, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec valgrind -q --tool=callgrind --callgrind-out-file=/dev/null %s \"$@\"\n", server)
	if err := os.WriteFile(filepath.Join(dir, "redis-server"), []byte(script), 0o700); err != nil {
		tb.Fatal(err)
	}
	tb.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// count runs a benchmark and reports the instructions of one decision.
func (r *benchRedis) count(b *testing.B, name string, bench func(*testing.B)) {
	b.Run(name, func(b *testing.B) {
		before := r.instructions(b)
		bench(b)
		b.ReportMetric((r.instructions(b)-before)/float64(b.N), "instructions/op")
		b.ReportMetric(0, "ns/op") // meaningless in valgrind
	})
}

var threadTotal = regexp.MustCompile(`(?m)^ *Th +\d+ +([\d,]+)`)

// instructions returns how many the server has executed.
func (r *benchRedis) instructions(tb testing.TB) (all float64) {
	tb.Helper()
	out, err := exec.Command("callgrind_control", "-e", strconv.Itoa(r.server.Pid())).CombinedOutput()
	found := threadTotal.FindAllStringSubmatch(string(out), -1)
	if err != nil || len(found) == 0 {
		tb.Fatalf("callgrind_control: %v\n%s", err, out)
	}
	for _, f := range found {
		n, err := strconv.ParseFloat(strings.ReplaceAll(f[1], ",", ""), 64)
		if err != nil {
			tb.Fatal(err)
		}
		all += n
	}
	return all
}

// benchScript runs a script that decides nothing, with the arguments of a decision
// and another key.
func (r *benchRedis) benchScript(b *testing.B, script string) {
	sha, err := r.client.ScriptLoad(context.Background(), script).Result()
	if err != nil {
		b.Fatal(err)
	}
	head := make([]byte, 16)
	for i := range b.N {
		keys, op := r.encoded(uint64(i))
		if err := r.client.EvalSha(context.Background(), sha, []string{keys[0] + "x"}, head, op).Err(); err != nil {
			b.Fatal(err)
		}
	}
}
