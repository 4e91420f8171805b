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

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

const (
	batches  = 20 // that are counted of a row
	runs     = 4  // of a row that exceeds what the file has, at most
	patience = 14 * time.Minute

	tolerance = 3 // how much more than the file has is accepted, in percent
)

// file has the instructions of a request, by row. It is for one architecture.
var file = "instructions_" + runtime.GOARCH + ".txt"

// TestInstructions counts the instructions of a request of each row, prints them, and compares
// them with the file. UPDATE_GOLDENS=1 writes it: say in the commit why a number changes.
func TestInstructions(t *testing.T) {
	held := readHeld(t)
	counts := count(t, build(t), held)
	var text strings.Builder
	for i, c := range rows {
		was, n := held[c.name], counts[i]
		t.Logf("%-24s %6d instructions, the file has %6d", c.name, n, was)
		fmt.Fprintf(&text, "%-24s %6d\n", c.name, n)
		if c.exceeds(n, was) {
			t.Errorf("%s: %d instructions, want at most %d %% above %d", c.name, n, tolerance, was)
		}
		if was == 0 && len(held) > 0 {
			t.Errorf("%s: %d instructions, and none in %s", c.name, n, file)
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
func (c row) exceeds(n, was int) bool { return was > 0 && n*100 > was*(100+tolerance) }

// count counts a request of each row: the least of all batches. What else goes on in the process,
// such as a log line of the second, only adds. So does what differs from process to process, such as what
// the runtime has cached: a row that exceeds what is held is counted again in another.
func count(t *testing.T, program string, held map[string]int) []int {
	t.Setenv(redisVar, redistest.Start(t).Addr)
	counts, of := make([]int, len(rows)), make([]int, len(rows))
	for i := range of {
		of[i] = i
	}
	for range runs {
		for i, n := range countOnce(t, program, of) {
			if counts[i] == 0 || n < counts[i] {
				counts[i] = n
			}
		}
		of = slices.DeleteFunc(of, func(i int) bool { return !rows[i].exceeds(counts[i], held[rows[i].name]) })
		if len(of) == 0 {
			break
		}
	}
	return counts
}

// countOnce counts some rows in a process of their own.
func countOnce(t *testing.T, program string, of []int) map[int]int {
	names := make([]string, len(of))
	for k, i := range of {
		names[k] = regexp.QuoteMeta(strings.ReplaceAll(rows[i].name, " ", "_"))
	}
	out := filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "valgrind", "--tool=callgrind", "--callgrind-out-file="+out, "--instr-atstart=no", "--compress-strings=no",
		program, "-test.run", "^$", "-test.bench", "^BenchmarkRequest$/^("+strings.Join(names, "|")+")$", "-test.benchtime", strconv.Itoa(batches)+"x")
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("valgrind: %v\n%s", err, text)
	}
	counts := make(map[int]int)
	for k, i := range of {
		without := sampled
		if rows[i].redis {
			without = scheduled
		}
		for n := range batches {
			got := instructions(t, fmt.Sprintf("%s.%d", out, k*batches+n+1), without) / rows[i].batch()
			if was, ok := counts[i]; !ok || got < was {
				counts[i] = got
			}
		}
	}
	return counts
}

// Functions that are left out, because what they do depends on how busy the machine is: top keys
// are sampled once there are 10,000 requests a second and, of a request that waits for Redis, what
// the runtime does to find other work.
var (
	sampled   = regexp.MustCompile(`/topk[.]|[.]countKey$`)
	scheduled = regexp.MustCompile(sampled.String() + `|^(internal/)?runtime[./]`)
)

// instructions returns what a file of callgrind has counted, without some functions.
func instructions(t *testing.T, file string, without *regexp.Regexp) (sum int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	leftOut, call := false, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "fn="); ok {
			leftOut = without.MatchString(name)
			continue
		}
		_, cost, ok := strings.Cut(line, " ")
		n, err := strconv.Atoi(cost)
		isCost := ok && err == nil && strings.ContainsAny(line[:1], "+-*0123456789")
		if isCost && !leftOut && !call { // the line after a call has what the callee executed
			sum += n
		}
		call = strings.HasPrefix(line, "calls=")
	}
	if sum == 0 {
		t.Fatalf("no instructions in %s", text)
	}
	return sum
}
