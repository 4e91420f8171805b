// Package instructions counts what a request executes. Instructions repeat to a percent on any
// machine, where times do not, so that they can be held.
package instructions

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/redistest"
)

const (
	requests = 2000 // that are counted of a row
	tries    = 3
	patience = 10 * time.Minute

	// How much more than the file has is accepted, in percent. What a request through Redis
	// executes includes the scheduler's search for other work, which depends on the machine.
	tolerance      = 3
	toleranceRedis = 15
)

// file has the instructions of a request, by row. It is for one architecture.
var file = "instructions_" + runtime.GOARCH + ".txt"

// TestInstructions counts the instructions of a request of each row, prints them, and compares
// them with the file. UPDATE_GOLDENS=1 writes it: say in the commit why a number rises.
func TestInstructions(t *testing.T) {
	held, program := readHeld(t), build(t)
	counts := countAll(t, program)
	for range tries - 1 { // what else goes on in the process only adds
		if !slices.ContainsFunc(rows, func(c row) bool { return c.exceeds(counts, held) }) {
			break
		}
		for name, n := range countAll(t, program) {
			counts[name] = min(counts[name], n)
		}
	}
	var text strings.Builder
	for _, c := range rows {
		n, was := counts[c.name], held[c.name]
		t.Logf("%-24s %6d instructions, the file has %6d", c.name, n, was)
		fmt.Fprintf(&text, "%-24s %6d\n", c.name, n)
		if c.exceeds(counts, held) {
			t.Errorf("%s: %d instructions, want at most %d %% above %d", c.name, n, c.tolerance(), was)
		}
		if n == 0 || was == 0 && len(held) > 0 {
			t.Errorf("%s: %d instructions counted, %d in %s", c.name, n, was, file)
		}
	}
	if os.Getenv("UPDATE_GOLDENS") != "" {
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// build compiles this program again as it is, but with its symbols, which go test leaves out.
func build(t *testing.T) (program string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("no build information")
	}
	program = filepath.Join(t.TempDir(), "program")
	args := []string{"test", "-c", "-o", program}
	for _, s := range info.Settings {
		switch s.Key {
		case "-tags", "-trimpath":
			args = append(args, s.Key+"="+s.Value)
		case "CGO_ENABLED":
			t.Setenv(s.Key, s.Value)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if text, err := exec.CommandContext(ctx, "go", append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return program
}

// readHeld returns the numbers of the file; none on an architecture that has no file.
func readHeld(t *testing.T) map[string]int {
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	held := make(map[string]int)
	for line := range strings.Lines(string(b)) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		n, err := strconv.Atoi(strings.TrimSpace(line[at+1:]))
		if err != nil {
			t.Fatalf("%s: %q: want a name and a number", file, line)
		}
		held[strings.TrimSpace(line[:at])] = n
	}
	return held
}

// exceeds reports whether a row has more instructions than the file and the tolerance allow.
func (c row) exceeds(counts, held map[string]int) bool {
	was := held[c.name]
	return was > 0 && counts[c.name]*100 > was*(100+c.tolerance())
}

func (c row) tolerance() int {
	if c.redis {
		return toleranceRedis
	}
	return tolerance
}

// countAll counts all rows.
func countAll(t *testing.T, program string) map[string]int {
	counts := countLocal(t, program)
	for _, c := range rows {
		if c.redis {
			counts[c.name] = countRedis(t, program, c.name)
		}
	}
	return counts
}

// The functions that tell callgrind what to count.
const (
	countedFunction = "github.com/dianalimiter/diana/test/instructions.(*sender).counted"
	endFunction     = "github.com/dianalimiter/diana/test/instructions.(*sender).end"
)

var summary = regexp.MustCompile(`(?m)^summary: (\d+)$`)

// countLocal counts the rows that are decided in this process, all in one run.
func countLocal(t *testing.T, program string) map[string]int {
	out := filepath.Join(t.TempDir(), "out")
	callgrind(t, program, requests, "BenchmarkRequest", "--callgrind-out-file="+out, "--collect-atstart=no", "--toggle-collect="+countedFunction, "--dump-before="+endFunction)
	counts, dump := make(map[string]int), 0
	for _, c := range rows {
		if c.redis {
			continue
		}
		dump++
		b, err := os.ReadFile(out + "." + strconv.Itoa(dump))
		if err != nil {
			t.Fatal(err)
		}
		counts[c.name] = number(t, summary, b) / requests
	}
	return counts
}

var collected = regexp.MustCompile(`Collected : (\d+)`)

// countRedis counts a row whose requests wait for other goroutines: all that the process executes
// for many requests, less what it executes for few.
func countRedis(t *testing.T, program, name string) int {
	t.Setenv(redisVar, redistest.Start(t).Addr)
	bench := "Request/^" + strings.ReplaceAll(name, " ", "_") + "$"
	few := number(t, collected, callgrind(t, program, requests, bench, "--callgrind-out-file=/dev/null"))
	many := number(t, collected, callgrind(t, program, 3*requests, bench, "--callgrind-out-file=/dev/null"))
	return (many - few) / (2 * requests)
}

func number(t *testing.T, pattern *regexp.Regexp, text []byte) int {
	t.Helper()
	match := pattern.FindSubmatch(text)
	if match == nil {
		t.Fatalf("no %s in %s", pattern, text)
	}
	n, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// callgrind runs benchmarks with n requests, and returns what it prints.
func callgrind(t *testing.T, program string, n int, bench string, options ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := append([]string{"--tool=callgrind"}, options...)
	args = append(args, program, "-test.run", "^$", "-test.bench", bench, "-test.benchtime", strconv.Itoa(n)+"x")
	cmd := exec.CommandContext(ctx, "valgrind", args...)
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=1")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("valgrind: %v\n%s", err, text)
	}
	return text
}
