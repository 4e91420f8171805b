package redis

import (
	"sync"
	"sync/atomic"
	"time"
)

// silence is for how long a node has not replied. A stall is no outage, and one timeout may be a lost packet:
//
//	state    a call is sent  a reply comes  a call times out
//	replied  asked           -              -
//	asked    -               replied        doubted
//	doubted  -               replied        doubted: the node is silent since it was asked
//
// All times are since a breaker began.
type silence struct {
	asked atomic.Int64 // send time of the oldest call since the last reply; 0: none

	mu    sync.Mutex
	doubt doubt // of the time when asked was as it says
}

// doubt is what is known since the first timeout: for how long this process has stood still since the node was
// asked, and until when it last did. That does not count as silence: a reply may have come meanwhile.
type doubt struct{ asked, stood, until time.Duration }

// begin notes that a call is sent.
func (s *silence) begin(at time.Duration) { s.asked.CompareAndSwap(0, int64(at)) }

// end notes a reply.
func (s *silence) end() {
	if s.asked.Load() != 0 {
		s.asked.Store(0)
	}
}

// timedOut notes that a call timed out, which this process noticed late because it stood still. It returns for how
// long the node is silent.
func (s *silence) timedOut(at, late time.Duration) time.Duration {
	asked := time.Duration(s.asked.Load())
	if asked == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.doubt.asked != asked
	if first {
		s.doubt = doubt{asked: asked, until: asked}
	}
	s.doubt.standStill(at, late)
	if first {
		return 0
	}
	return at - asked - s.doubt.stood
}

// standStill notes that this process has stood still before a time for so long. What calls say of the same
// pause counts once.
func (d *doubt) standStill(at, late time.Duration) {
	if late > 0 {
		d.stood += at - max(at-late, d.until)
		d.until = at
	}
}
