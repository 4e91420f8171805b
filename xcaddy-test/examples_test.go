package xcaddytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// examples checks, for each folder below examples/, the output of the commands in
// its Caddyfile's comment.
var examples = map[string]func(printed string, took time.Duration) error{
	"quickstart": func(printed string, _ time.Duration) error {
		waits := regexp.MustCompile(`(?m)^Retry-After: ([1-9]|10)\r?$`).FindAllString(printed, -1)
		return errors.Join(
			wantStatuses(printed, times(10, 200), times(2, 429)),
			wantf(len(waits) == 2, "%d lines Retry-After, want 2, of 1 to 10 seconds", len(waits)))
	},
	"account-and-address": func(printed string, _ time.Duration) error {
		return wantStatuses(printed, times(5, 200), times(1, 429), times(15, 200), times(5, 429))
	},
	"sms-code": func(printed string, _ time.Duration) error {
		return wantStatuses(printed, times(1, 200), times(1, 429), times(1, 200))
	},
	"login": func(printed string, _ time.Duration) error {
		return wantStatuses(printed, times(10, 200), times(5, 401), times(1, 429))
	},
	"funnel": func(printed string, took time.Duration) error {
		return errors.Join(
			wantStatuses(printed, times(10, 200)),
			wantf(took > 1800*time.Millisecond && took < 10*time.Second,
				"ten requests at five per second took %v, want slightly more than 1.8 s", took))
	},
	"shared-redis": func(printed string, _ time.Duration) error {
		return wantStatuses(printed, times(10, 200), times(2, 429))
	},
	"llm-gateway": func(printed string, _ time.Duration) error {
		return errors.Join(
			wantStatuses(printed, times(2, 200), times(1, 429)),
			wantf(strings.Contains(printed, `"usage":{"completion_tokens":300,"prompt_tokens":1,"total_tokens":301}`), "no usage of a completion"),
			wantf(strings.Contains(printed, `"usage":{"input_tokens":1,"output_tokens":300}`), "no usage of a message"),
			wantf(strings.Count(printed, `"delta"`) > 300 && strings.Contains(printed, "data: [DONE]"), "no stream"),
			wantf(strings.Count(printed, `"used":903,`) >= 1, "not 903 tokens are used of the month, and what is left of them of the minute"),
			wantf(strings.Contains(printed, `"code":"rate_limit_exceeded"`), "no error as OpenAI's"),
			wantf(regexp.MustCompile(`"group": "blue / small",\s+"cost": 543\b`).MatchString(printed), "not 543 microdollars of the team and model"))
	},
	"overload": func(printed string, _ time.Duration) error {
		return wantf(regexp.MustCompile(`"places": ?{\s*"min": ?4,\s*"max": ?1000,\s*"limit"`).MatchString(printed), "no places")
	},
	"json-error": func(printed string, _ time.Duration) error {
		problems := wantStatuses(printed, times(2, 200), times(1, 429), times(2, 200), times(1, 429))
		for _, text := range []string{
			`{"code":888,"message":"rate limit error"}`, "Content-Type: application/json", "Retry-After: ",
		} {
			n := strings.Count(printed, text)
			problems = errors.Join(problems, wantf(n == 2, "%q is printed %d times, want 2", text, n))
		}
		return problems
	},
}

// TestExamples checks that every example adapts, validates, and that the commands in
// its comment have the documented output.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../examples/*/Caddyfile")
	if err != nil || len(files) != len(examples) {
		t.Fatalf("%d examples (%v), %d of them in the table", len(files), err, len(examples))
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			validates(t, file)
			shell, serve := commands(t, string(text)), runSingle
			switch name {
			case "shared-redis":
				serve = runShared
			case "llm-gateway", "overload":
				serve = runWithUpstream
			}
			// On a loaded machine the requests may take longer than the windows that they are to fall in, or Redis
			// longer than its default timeout of 25 ms. Those of each example take less than four seconds otherwise.
			const tries, most, slow = 3, 10, 4 * time.Second
			for try, loaded := 1, 0; ; try++ {
				printed, took := serve(t, file, shell)
				problem := examples[name](printed, took)
				if problem == nil {
					break
				}
				if took > slow {
					loaded++
				}
				if try-loaded >= tries || try == most {
					t.Fatalf("%v; printed:\n%s", problem, printed)
				}
			}
		})
	}
}

// TestMakeRunPrintsQuickstartCommand checks that .ci/howto prints the command of the
// quickstart's Caddyfile.
func TestMakeRunPrintsQuickstartCommand(t *testing.T) {
	text, err := os.ReadFile("../examples/quickstart/Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	howto, err := harness.Program(t, "../.ci/howto").Output()
	if err != nil || !strings.Contains(string(howto), strings.TrimSpace(commands(t, string(text)))) || !strings.Contains(string(howto), "http://localhost:2019/rate_limit/") {
		t.Errorf("make run prints (%v):\n%s", err, howto)
	}
}

// TestMakeExampleNamesAll checks that make example with an unknown name lists all examples.
func TestMakeExampleNamesAll(t *testing.T) {
	out, err := harness.Program(t, "../.ci/example", "logins").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "example logins: want NAME= and one of") {
		t.Errorf("%v: %s", err, out)
	}
	for name := range examples {
		if !strings.Contains(string(out), name) {
			t.Errorf("no %s in %s", name, out)
		}
	}
}

// TestMakeRunOnOtherPorts checks that the ports of make run are those of the environment,
// where it serves and in what it prints.
func TestMakeRunOnOtherPorts(t *testing.T) {
	t.Parallel()
	port, admin := fmt.Sprint(harness.FreePort(t)), fmt.Sprint(harness.FreePort(t))
	env := []string{"PORT=" + port, "ADMIN=" + admin}
	howto := harness.Program(t, "../.ci/howto")
	howto.Env = append(os.Environ(), env...)
	said, err := howto.Output()
	if err != nil || !strings.Contains(string(said), "localhost:"+port+" |") || !strings.Contains(string(said), "http://localhost:"+admin+"/rate_limit/") || !strings.Contains(string(said), "--address localhost:"+admin+"\n") {
		t.Errorf("make run prints (%v):\n%s", err, said)
	}
	runExample(t, "quickstart", env)
	opensInBrowser(t, "http://localhost:"+port, "http://localhost:"+admin+"/rate_limit/")
}

// TestPortsInUse checks that make run and make example do not serve a port at which something answers.
func TestPortsInUse(t *testing.T) {
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	_, used, _ := net.SplitHostPort(taken.Listener.Addr().String())
	free := fmt.Sprint(harness.FreePort(t))
	for _, c := range []struct {
		port, admin string
		fails       bool
	}{{used, free, true}, {free, used, true}, {free, free, false}} {
		ports := harness.Program(t, "../.ci/ports")
		ports.Env = append(os.Environ(), "PORT="+c.port, "ADMIN="+c.admin)
		out, err := ports.CombinedOutput()
		if (err != nil) != c.fails || c.fails && !strings.Contains(string(out), "port "+used+" is in use") {
			t.Errorf("%v: %v, %s", c, err, out)
		}
	}
}

// TestSharedExampleHasPage checks that the pages that the comment of the example names open
// in a browser.
func TestSharedExampleHasPage(t *testing.T) {
	t.Parallel()
	admin := fmt.Sprint(harness.FreePort(t))
	runExample(t, "shared-redis", []string{"REDIS=" + harness.StartRedis(t).Addr, fmt.Sprint("PORT=", harness.FreePort(t)), "ADMIN=" + admin})
	opensInBrowser(t, "http://localhost:"+admin+"/rate_limit/", "http://127.0.0.1:"+admin+"/rate_limit/")
}

// runExample starts Caddy with the Caddyfile of an example.
func runExample(t *testing.T, name string, env []string) {
	t.Helper()
	run := harness.Command(t, t.TempDir(), "run", "--config", "../examples/"+name+"/Caddyfile")
	run.Env = append(run.Env, env...)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
	})
}

// opensInBrowser waits until addresses are answered 200 to a browser in which they are typed:
// it sends no Origin.
func opensInBrowser(t *testing.T, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		harness.Until(t, harness.Patience, address, func() bool {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Sec-Fetch-Mode", "navigate")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}
}

// commands returns the indented shell commands of a Caddyfile's first comment.
func commands(t *testing.T, caddyfile string) string {
	t.Helper()
	var shell strings.Builder
	for line := range strings.Lines(caddyfile) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		if command, is := strings.CutPrefix(line, "#     "); is {
			shell.WriteString(command)
		}
	}
	if shell.Len() == 0 {
		t.Fatal("the comment has no commands")
	}
	return shell.String()
}

func validates(t *testing.T, file string) {
	t.Helper()
	// Nothing listens on port 1: validating must not dial.
	cmd := harness.Command(t, t.TempDir(), "validate", "--config", file)
	cmd.Env = append(cmd.Env, "REDIS=127.0.0.1:1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("validate: %v\n%s", err, out)
	}
	if out, err := harness.Command(t, t.TempDir(), "fmt", "--diff", file).CombinedOutput(); err != nil {
		t.Errorf("fmt: %v\n%s", err, out)
	}
}

// runSingle serves an example in one instance on free ports and runs its commands.
func runSingle(t *testing.T, file, shell string) (printed string, took time.Duration) {
	t.Helper()
	adapted, err := harness.Command(t, t.TempDir(), "adapt", "--config", file).Output()
	if err != nil {
		t.Fatalf("adapt: %v", err)
	}
	port, admin := harness.FreePort(t), harness.FreePort(t)
	var config struct {
		Admin map[string]any                        `json:"admin,omitempty"`
		Apps  map[string]map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	servers := string(config.Apps["http"]["servers"])
	if at := config.Admin["listen"]; at != nil && at != "localhost:2019" || strings.Count(servers, `":8080"`) != 1 {
		t.Fatalf("want an example that listens on :8080, and its admin endpoint where it is by default: %s", adapted)
	}
	config.Admin = map[string]any{"listen": fmt.Sprintf("127.0.0.1:%d", admin)}
	config.Apps["http"]["servers"] = json.RawMessage(
		strings.Replace(servers, `":8080"`, fmt.Sprintf(`"127.0.0.1:%d"`, port), 1))
	moved, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	harness.StartCaddyJSON(t, moved, port, admin)
	return runShell(t, ".", strings.ReplaceAll(shell, "localhost:8080", fmt.Sprintf("127.0.0.1:%d", port)))
}

// runWithUpstream runs the commands of an example that brings its upstream.
func runWithUpstream(t *testing.T, file, shell string) (printed string, took time.Duration) {
	t.Helper()
	port, admin := startWithUpstream(t, filepath.Base(filepath.Dir(file)))
	return runShell(t, ".", strings.NewReplacer("localhost:8080", "localhost:"+port, "localhost:2019", "localhost:"+admin).Replace(shell))
}

// startWithUpstream builds and starts the command of an example, with its upstream.
func startWithUpstream(t *testing.T, name string) (port, admin string) {
	t.Helper()
	built := filepath.Join(t.TempDir(), "gateway")
	port, admin = fmt.Sprint(harness.FreePort(t)), fmt.Sprint(harness.FreePort(t))
	build := harness.Program(t, "go", "build", "-trimpath", "-tags", "nobadger,nomysql,nopgx", "-ldflags", "-s -w", "-buildvcs=false", "-o", built, "./examples/"+name)
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := harness.Program(t, built)
	run.Dir, run.Env = "..", append(os.Environ(), "PORT="+port, "ADMIN="+admin, fmt.Sprint("UPSTREAM=", harness.FreePort(t)), fmt.Sprint("WITHOUT=", harness.FreePort(t)), "HOME="+t.TempDir())
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
	})
	harness.Until(t, harness.Patience, "the gateway", func() bool {
		conn, err := net.Dial("tcp", "localhost:"+port)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return port, admin
}

// runShared runs the commands of the example, which start its instances.
func runShared(t *testing.T, file, shell string) (printed string, took time.Duration) {
	t.Helper()
	redis := harness.StartRedis(t)
	replacements := []string{"caddy ", harness.Binary() + " ", "localhost:", "127.0.0.1:"}
	for _, port := range []string{"8081", "8082", "8083", "2021", "2022", "2023"} {
		free := fmt.Sprint(harness.FreePort(t))
		replacements = append(replacements, port, free)
		if port < "8" {
			// The last command stops them, but runs only if the others succeed.
			stop := harness.Command(t, t.TempDir(), "stop", "--address", "127.0.0.1:"+free)
			t.Cleanup(func() { _ = stop.Run() })
		}
	}
	// One replacer, because one port may contain another's digits.
	shell = strings.NewReplacer(replacements...).Replace(shell)
	return runShell(t, filepath.Dir(file), shell, "REDIS="+redis.Addr)
}

// runShell runs commands in dir and returns the output of curl.
func runShell(t *testing.T, dir, shell string, env ...string) (printed string, took time.Duration) {
	t.Helper()
	home := t.TempDir()
	cmd := harness.Program(t, "bash", "-ec", shell)
	cmd.Dir = dir
	cmd.Env = slices.Concat(harness.Command(t, home).Env, env)
	var problems strings.Builder
	cmd.Stderr = &problems
	started := time.Now()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s\n%v\n%s%s", shell, err, out, problems.String())
	}
	return string(out), time.Since(started)
}

func times(n, status int) []int { return slices.Repeat([]int{status}, n) }

// wantf returns nil if ok is true, and otherwise the error.
func wantf(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

var printedStatus = regexp.MustCompile(`(?m)^(?:HTTP/\S+ )?([1-5]\d\d)\b`)

// wantStatuses checks the printed statuses, each on its own line or in a status
// line.
func wantStatuses(printed string, parts ...[]int) error {
	want := slices.Concat(parts...)
	var got []int
	for _, match := range printedStatus.FindAllStringSubmatch(printed, -1) {
		status, err := strconv.Atoi(match[1])
		if err != nil {
			return err
		}
		got = append(got, status)
	}
	return wantf(slices.Equal(got, want), "statuses %v, want %v", got, want)
}
