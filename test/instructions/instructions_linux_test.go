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
	held := readHeld(t)
	var text strings.Builder
	program := build(t)
	for _, c := range rows {
		count, allowed := countLocal, tolerance
		if c.redis {
			count, allowed = countRedis, toleranceRedis
		}
		was, n := held[c.name], 0
		for range tries { // what else goes on in the process only adds
			if again := count(t, program, c.name); n == 0 || again < n {
				n = again
			}
			if n*100 <= was*(100+allowed) {
				break
			}
		}
		t.Logf("%-24s %6d instructions, the file has %6d", c.name, n, was)
		fmt.Fprintf(&text, "%-24s %6d\n", c.name, n)
		if was > 0 && n*100 > was*(100+allowed) {
			t.Errorf("%s: %d instructions, want at most %d %% above %d", c.name, n, allowed, was)
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

// counted is the function that sends the requests.
const countedFunction = "github.com/dianalimiter/diana/test/instructions.(*sender).counted"

// countLocal counts a row that is decided in this process. A benchmark sends one request before
// it sends as many as it is told.
func countLocal(t *testing.T, program, name string) int {
	return callgrind(t, program, requests, name, "--collect-atstart=no", "--toggle-collect="+countedFunction) / (requests + 1)
}

// countRedis counts a row whose requests wait for other goroutines: all that the process executes
// for many requests, less what it executes for few.
func countRedis(t *testing.T, program, name string) int {
	t.Setenv(redisVar, redistest.Start(t).Addr)
	few := callgrind(t, program, requests, name)
	many := callgrind(t, program, 3*requests, name)
	return (many - few) / (2 * requests)
}

var collected = regexp.MustCompile(`Collected : (\d+)`)

// callgrind runs the benchmark of a row with n requests, and returns how many instructions it
// counted.
func callgrind(t *testing.T, program string, n int, name string, options ...string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := append([]string{"--tool=callgrind", "--callgrind-out-file=/dev/null"}, options...)
	bench := "Request/^" + strings.ReplaceAll(name, " ", "_") + "$"
	args = append(args, program, "-test.run", "^$", "-test.bench", bench, "-test.benchtime", strconv.Itoa(n)+"x")
	cmd := exec.CommandContext(ctx, "valgrind", args...)
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=1")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("valgrind: %v\n%s", err, text)
	}
	match := collected.FindSubmatch(text)
	if match == nil {
		t.Fatalf("%s: no number in\n%s", name, text)
	}
	count, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return count
}
