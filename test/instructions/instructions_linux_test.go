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
	tries    = 3    // one process in fifty is counted in part: callgrind loses a stack that moves
	patience = 10 * time.Minute

	// How much more than the file has is accepted, in percent. What a request through Redis
	// executes includes the scheduler's search for other work.
	tolerance      = 3
	toleranceRedis = 15
)

// file has the instructions of a request, by row. It is for one architecture.
var file = "instructions_" + runtime.GOARCH + ".txt"

// TestInstructions counts the instructions of a request of each row, prints them, and compares
// them with the file. UPDATE_GOLDENS=1 writes it: say in the commit why a number changes.
func TestInstructions(t *testing.T) {
	held, program := readHeld(t), build(t)
	var text strings.Builder
	for _, c := range rows {
		was, n := held[c.name], c.count(t, program)
		for range tries - 1 {
			if n > 0 && !c.exceeds(n, was) {
				break
			}
			n = c.count(t, program)
		}
		t.Logf("%-24s %6d instructions, the file has %6d", c.name, n, was)
		fmt.Fprintf(&text, "%-24s %6d\n", c.name, n)
		if n <= 0 || c.exceeds(n, was) || was == 0 && len(held) > 0 {
			t.Errorf("%s: %d instructions, want at most %d %% above %d", c.name, n, c.tolerance(), was)
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

// exceeds reports whether n instructions are more than the file has, and the tolerance allows.
func (c row) exceeds(n, was int) bool { return was > 0 && n*100 > was*(100+c.tolerance()) }

func (c row) tolerance() int {
	if c.redis {
		return toleranceRedis
	}
	return tolerance
}

// countedFunction is the function that sends the requests.
const countedFunction = "github.com/dianalimiter/diana/test/instructions.(*sender).counted"

// count counts a request of the row. One that is decided in this process is what the function
// that sends it executes. Those through Redis wait for other goroutines: they are all that the
// process executes for many requests, less what it executes for few.
func (c row) count(t *testing.T, program string) int {
	if !c.redis {
		return callgrind(t, program, requests, c.name, "--collect-atstart=no", "--toggle-collect="+countedFunction) / requests
	}
	t.Setenv(redisVar, redistest.Start(t).Addr)
	return (callgrind(t, program, 3*requests, c.name) - callgrind(t, program, requests, c.name)) / (2 * requests)
}

var (
	totals = regexp.MustCompile(`(?m)^totals: (\d+)`)

	// The sample of top keys is left out: it is taken of few requests once there are 10,000 a
	// second, which a busy machine does not reach. A call's line has what it executed.
	sample = regexp.MustCompile(`cfn=.*[.]countKey\ncalls=.*\n\d+ (\d+)`)
)

// number returns the sum of the numbers that follow the expression in a text.
func number(t *testing.T, r *regexp.Regexp, text []byte) (sum int) {
	t.Helper()
	for _, match := range r.FindAllSubmatch(text, -1) {
		n, err := strconv.Atoi(string(match[1]))
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// callgrind runs the benchmark of a row with n requests, and returns how many instructions it
// counted.
func callgrind(t *testing.T, program string, n int, name string, options ...string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, bench := filepath.Join(t.TempDir(), "out"), "Request/^"+strings.ReplaceAll(name, " ", "_")+"$"
	args := append([]string{"--tool=callgrind", "--compress-strings=no", "--compress-pos=no", "--callgrind-out-file=" + out}, options...)
	args = append(args, program, "-test.run", "^$", "-test.bench", bench, "-test.benchtime", strconv.Itoa(n)+"x")
	cmd := exec.CommandContext(ctx, "valgrind", args...)
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: valgrind: %v\n%s", name, err, text)
	}
	counted, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return number(t, totals, counted) - number(t, sample, counted)
}
