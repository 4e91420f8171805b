package chaos

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// monitor records the commands that Redis runs, except those within scripts.
type monitor struct {
	t     *testing.T
	srv   *redistest.Server
	conn  net.Conn
	lines chan []string
}

func watch(t *testing.T, srv *redistest.Server) *monitor {
	t.Helper()
	c, err := net.Dial("tcp", srv.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprint(c, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	m := &monitor{t, srv, c, make(chan []string)}
	go func() {
		var lines []string
		s := bufio.NewScanner(c)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			if text := s.Text(); !strings.Contains(text, " lua] ") {
				lines = append(lines, text)
			}
		}
		m.lines <- lines
	}()
	return m
}

// lateCalls counts the calls that Redis ran after it was resumed although their
// callers had timed out: those on connections that the instances had closed.
// Heartbeats are counted separately.
func (m *monitor) lateCalls(resumed time.Time) (calls, probes int) {
	m.t.Helper()
	time.Sleep(100 * time.Millisecond) // the last lines arrive with the last replies
	m.conn.Close()
	list, err := m.srv.Client().ClientList(context.Background()).Result()
	if err != nil {
		m.t.Fatal(err)
	}
	for _, line := range <-m.lines { // +1339518083.107412 [0 127.0.0.1:60866] "evalsha" ...
		at, rest, _ := strings.Cut(strings.TrimPrefix(line, "+"), " [")
		from, command, _ := strings.Cut(rest, "] ")
		_, addr, _ := strings.Cut(from, " ")
		seconds, _ := strconv.ParseFloat(at, 64)
		switch {
		case seconds < float64(resumed.UnixMicro())/1e6 || !strings.HasPrefix(command, `"evalsha"`) || strings.Contains(list, "addr="+addr+" "):
		case strings.Contains(command, "{instances}"):
			probes++
		default:
			calls++
		}
	}
	return calls, probes
}
