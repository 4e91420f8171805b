package harness

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// Watch returns the commands that Redis executes while do runs, in MONITOR's format,
// except those of scripts and of maintenance, which is independent of requests.
func (r *Redis) Watch(t testing.TB, do func()) []string {
	t.Helper()
	const end = "end-of-watch"
	conn, err := net.Dial("tcp", r.Addr)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatalf("watch: %v", err)
	}
	if password := r.Options().Password; password != "" {
		fmt.Fprintf(conn, "AUTH %s\r\n", password)
	}
	fmt.Fprintf(conn, "MONITOR\r\n")
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	// Monitoring begins with the OK, not with the request.
	for started := false; !started; started = lines.Text() == "+OK" {
		if !lines.Scan() {
			t.Fatalf("watch: monitor did not start: %v", lines.Err())
		}
	}

	do()
	// MONITOR shows this command after all earlier ones.
	if err := r.Echo(context.Background(), end).Err(); err != nil {
		t.Fatalf("watch: %v", err)
	}
	var seen []string
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.Contains(line, end):
			return seen
		case !strings.Contains(line, " lua] ") && !strings.Contains(line, Maintenance):
			seen = append(seen, line)
		}
	}
	t.Fatalf("watch: monitor did not show the last command: %v", lines.Err())
	return nil
}
