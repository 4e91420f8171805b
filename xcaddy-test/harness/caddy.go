package harness

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Config is a Caddyfile of one site, in parts, to which StartCaddy adds the ports.
type Config struct {
	Global string // lines of the global options
	Site   string // lines of the site
	Admin  string // lines of the admin option
}

// AdminAddress is a placeholder in a configuration for the address of its admin
// endpoint.
const AdminAddress = "admin.address"

// AdminPort is a placeholder in a configuration for the port of its admin endpoint.
const AdminPort = "admin.port"

// Caddyfile returns the whole Caddyfile of an instance on the given ports.
func (c Config) Caddyfile(admin string, port int) string {
	block := ""
	if c.Admin != "" {
		block = " {\n" + c.Admin + "\n}"
	}
	text := fmt.Sprintf("{\n\tadmin %s%s\n%s\n}\n\n:%d {\n\tbind 127.0.0.1\n%s\n}\n",
		admin, block, c.Global, port, c.Site)
	_, adminPort, _ := strings.Cut(admin, ":")
	return strings.NewReplacer(AdminAddress, admin, AdminPort, adminPort).Replace(text)
}

// Caddy is a running Caddy.
type Caddy struct {
	URL   string // of the site, without a trailing slash
	Admin string // URL of the admin endpoint, likewise
	Port  int    // of the site
	Dir   string // persistent files, including the autosaved configuration

	program string // that runs
	path    string // of the configuration
	env     []string
	cmd     *exec.Cmd
	log     Output
	exited  chan struct{}
}

// StartCaddy runs config on free ports until the end of the test and returns when it
// serves. env are additional environment variables, KEY=value.
func StartCaddy(t testing.TB, config Config, env ...string) *Caddy {
	t.Helper()
	return StartProgram(t, binary, config, env...)
}

// StartProgram is like StartCaddy for program, a Caddy that was built elsewhere.
func StartProgram(t testing.TB, program string, config Config, env ...string) *Caddy {
	t.Helper()
	port, adminPort := FreePort(t), FreePort(t)
	text := config.Caddyfile(fmt.Sprintf("127.0.0.1:%d", adminPort), port)
	return start(t, program, "Caddyfile", []byte(text), port, adminPort, env)
}

// StartCaddyJSON is like StartCaddy for a complete JSON configuration that already
// contains both ports.
func StartCaddyJSON(t testing.TB, config []byte, port, adminPort int, env ...string) *Caddy {
	t.Helper()
	return start(t, binary, "caddy.json", config, port, adminPort, env)
}

func start(t testing.TB, program, name string, config []byte, port, adminPort int, env []string) *Caddy {
	t.Helper()
	c := &Caddy{
		URL:   fmt.Sprintf("http://127.0.0.1:%d", port),
		Admin: fmt.Sprintf("http://127.0.0.1:%d", adminPort),
		Port:  port, Dir: t.TempDir(), program: program,
	}
	path := filepath.Join(c.Dir, name)
	if err := os.WriteFile(path, config, 0o600); err != nil {
		t.Fatal(err)
	}
	c.path, c.env = path, env
	t.Cleanup(func() { c.end(t) })
	c.run(t, 1)
	return c
}

// run starts the process for the nth time and returns when it serves.
func (c *Caddy) run(t testing.TB, nth int) {
	t.Helper()
	exited := make(chan struct{})
	cmd := exec.Command(c.program, "run", "--config", c.path)
	cmd.Env = append(environment(c.Dir), c.env...)
	cmd.Stderr = &c.log
	cmd.Stdout = &c.log
	c.cmd, c.exited = cmd, exited
	if err := cmd.Start(); err != nil {
		t.Fatalf("start caddy: %v", err)
	}
	go func() {
		defer close(exited)
		_ = cmd.Wait() // the log has the reason
	}()
	Until(t, Patience, "caddy serves", func() bool {
		c.mustRun(t)
		return strings.Count(c.Log(), "serving initial configuration") >= nth
	})
}

// Restart stops Caddy as its service manager would and starts it again with its
// persistent files.
func (c *Caddy) Restart(t testing.TB) {
	t.Helper()
	before := strings.Count(c.Log(), "serving initial configuration")
	c.stop(t)
	c.run(t, before+1)
}

// Replace is like Restart, and starts program, which was built elsewhere.
func (c *Caddy) Replace(t testing.TB, program string) {
	t.Helper()
	c.program = program
	c.Restart(t)
}

// Kill kills Caddy with SIGKILL.
func (c *Caddy) Kill() {
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// Log returns everything that Caddy has logged so far.
func (c *Caddy) Log() string { return c.log.String() }

// WaitLog waits for a log line that contains all parts and returns it.
func (c *Caddy) WaitLog(t testing.TB, within time.Duration, parts ...string) string {
	t.Helper()
	var found string
	Until(t, within, fmt.Sprintf("a log line with %q", parts), func() bool {
		for line := range strings.Lines(c.Log()) {
			if containsAll(line, parts) {
				found = line
				return true
			}
		}
		return false
	})
	return found
}

func (c *Caddy) mustRun(t testing.TB) {
	t.Helper()
	select {
	case <-c.exited:
		t.Fatalf("caddy ended:\n%s", c.Log())
	default:
	}
}

func (c *Caddy) stop(t testing.TB) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails if the process has ended
	select {
	case <-c.exited:
	case <-time.After(15 * time.Second):
		t.Error("caddy does not stop")
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
}

// end stops Caddy and fails the test if Caddy panicked or does not stop.
func (c *Caddy) end(t testing.TB) {
	if c.cmd != nil && c.cmd.Process != nil {
		c.stop(t)
	}
	log := c.Log()
	if strings.Contains(log, "panic") {
		t.Errorf("caddy panicked:\n%s", log)
	} else if t.Failed() {
		t.Logf("the end of caddy's log:\n%s", telling(log))
	}
}

// telling returns the end of a log without the lines of single denials.
func telling(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"rate limit exceeded"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-15):], "")
}

// Client returns an HTTP client for the given number of concurrent requests, each on
// a persistent connection. On a busy machine there are more of them at times: an idle
// connection is not closed for that, because the next request may have chosen it.
func Client(connections int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 100 * connections},
		Timeout:   time.Minute,
	}
}

func containsAll(s string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

// Output is the output of a process. It is safe for concurrent use.
type Output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (b *Output) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what was written so far.
func (b *Output) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// PID returns the ID of the process.
func (c *Caddy) PID() int { return c.cmd.Process.Pid }

// Stall stops the process until Resume.
func (c *Caddy) Stall(t testing.TB) { c.signal(t, syscall.SIGSTOP) }

// Resume ends Stall.
func (c *Caddy) Resume(t testing.TB) { c.signal(t, syscall.SIGCONT) }

func (c *Caddy) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Errorf("%v: %v", s, err)
	}
}
