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

// Watch returns every command that Redis executes while do runs, as MONITOR
// prints them, without the commands that scripts run and without maintenance,
// which runs at times of its own.
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
	// It watches from the moment it says OK, not from when it was asked to.
	for started := false; !started; started = lines.Text() == "+OK" {
		if !lines.Scan() {
			t.Fatalf("watch: monitor did not start: %v", lines.Err())
		}
	}

	do()
	// Everything that Redis ran before this, it has shown before this.
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
	t.Fatalf("watch: monitor did not show the end: %v", lines.Err())
	return nil
}
