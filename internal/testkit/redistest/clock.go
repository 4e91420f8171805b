package redistest

import (
	"context"
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/clock.c
var clockSource []byte

// compileTimeout is how long the C compiler may take.
const compileTimeout = time.Minute

// Clock controls the system clock as seen by one server.
type Clock struct {
	tb   testing.TB
	file string
	srv  *Server // nil: it is not started yet
}

// VirtualTime returns a script that takes the time from an expression instead of
// Redis' clock. Its TTLs are a thousand times longer, and a block's at least a minute, because
// keys still expire in real time.
func VirtualTime(tb testing.TB, script, now string) string {
	tb.Helper()
	for _, change := range [][2]string{
		{"local time = call('TIME')\nlocal t = time[1] * 1000000 + time[2]", "local t = " + now},
		{"local ttl = exp - (t - t % 1000) / 1000", "local ttl = exp * 1000 - (t - t % 1000)"},
		{"local ttl = math.ceil((ends - t) / 1000) + 999", "local ttl = math.max(60000, math.ceil((ends - t) / 1000) + 999)"},
	} {
		if !strings.Contains(script, change[0]) {
			tb.Fatalf("the script does not contain %q", change[0])
		}
		script = strings.ReplaceAll(script, change[0], change[1])
	}
	return script
}

// Set sets the server's clock ahead of the system's, and waits until the server, if it runs, has read it: Valkey 9
// reads its clock once a millisecond, and takes the time between from a clock that does not step.
func (c *Clock) Set(ahead time.Duration) {
	c.tb.Helper()
	c.write(0, ahead.Microseconds())
	if c.srv == nil {
		return
	}
	client := c.srv.Client()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		now, err := client.Time(context.Background()).Result()
		if off := now.Sub(time.Now().Add(ahead)).Abs(); err == nil && off < 30*time.Second {
			return
		} else if time.Now().After(deadline) {
			c.tb.Fatalf("the server's clock is %v off after it was set %v ahead: %v", off, ahead, err)
		}
	}
}

// Stop has the server's clock stand still at an instant.
func (c *Clock) Stop(at time.Time) { c.write(8, at.UnixMicro()) }

// write writes a number that clock.c reads.
func (c *Clock) write(offset, us int64) {
	c.tb.Helper()
	b := binary.NativeEndian.AppendUint64(nil, uint64(us))
	f, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o600) // mapped by the server, so it must not be truncated
	if err != nil {
		c.tb.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, offset); err != nil {
		c.tb.Fatal(err)
	}
}

// StartWithClock is like Start, with a clock that the test can step. It needs a C
// compiler, as the race detector does.
func StartWithClock(tb testing.TB, args ...string) (*Server, *Clock) {
	tb.Helper()
	dir := tb.TempDir()
	c := &Clock{tb: tb, file: filepath.Join(dir, "shift")}
	c.Set(0)
	source, lib := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), compileTimeout)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O1", "-o", lib, source, "-ldl").CombinedOutput(); err != nil { //nolint:gosec // a test's own files
		tb.Fatalf("cc: %v\n%s", err, out)
	}
	s := &Server{tb: tb, env: []string{"LD_PRELOAD=" + lib, "REDISTEST_CLOCK=" + c.file}}
	s.begin(FreePort(tb), args)
	c.srv = s
	return s, c
}
