package chaos

import (
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/redistest"
)

// pick is the first in a whole run and the second in that of every day.
func pick[T any](whole, short T) T {
	if full {
		return whole
	}
	return short
}

func rows() []row {
	return []row{
		{"kill", "Redis killed (kill -9), back after 10 s", wholePromise + "; shared again <= 1.5 s", true, killed},
		{"stall", "Redis stopped (SIGSTOP) for 5 s", wholePromise + "; shared again <= 1.5 s", true, stalled},
	}
}

const wholePromise = "0 5xx; 99.9 % within timeout + 10 ms of an unlimited request, none over 1 s; " +
	"at most the bound in a window, twice in one that touches the outage; nobody locked out after"

func killed(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := begin(t, srv.Addr)
	r := s.play(play{
		calm: 2 * time.Second, fault: pick(10*time.Second, 3*time.Second), after: 5 * time.Second,
		begin: srv.Kill, end: srv.Run,
	})
	s.judged(r, out, 1)
	judgeBack(t, r, out, r.ended, 1500*time.Millisecond)
	srv.CheckTTLs()
}

func stalled(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := begin(t, srv.Addr)
	r := s.play(play{
		calm: 2 * time.Second, fault: pick(5*time.Second, 3*time.Second), after: 5 * time.Second,
		begin: srv.Stall, end: srv.Resume,
	})
	s.judged(r, out, 0)
	judgeBack(t, r, out, r.ended, 1500*time.Millisecond)
	srv.CheckTTLs()
}
