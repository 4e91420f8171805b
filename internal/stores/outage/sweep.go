package outage

import (
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
)

// sweepEvery is how often all snapshots are put back, at most, because keys are missing.
// A Redis that evicts keys loses some all the time.
const sweepEvery = time.Minute

// What is known of a loss since the last sweep began.
const (
	noLoss     = iota
	keyMissing // a key is missing, and others perhaps
	memoryLost // a node has lost its memory
)

// sweep is the progress of putting back all snapshots and blocks after a loss:
//
//	event                      at rest, or under way   a key is missing          memory is lost
//	a key is missing           a key is missing        -                         -
//	memory is lost             memory is lost          memory is lost            -
//	a round, while none is     -                       begins, if sweepEvery     begins
//	under way and no node                              has passed since the
//	holds                                              last began
//	the last source is done    at rest                 -                         -
//
// A loss while one is under way waits for the next.
type sweep struct {
	loss  atomic.Int32 // noLoss, keyMissing or memoryLost
	going atomic.Bool  // whether one is under way

	// Only rounds use these.
	began time.Time     // the last one
	left  []source      // still to be put back
	from  memory.Cursor // in the first of them
}

// want notes a loss.
func (s *sweep) want(loss int32) {
	for was := s.loss.Load(); was < loss && !s.loss.CompareAndSwap(was, loss); {
		was = s.loss.Load()
	}
}

// unfinished says whether anything is still to be put back.
func (s *sweep) unfinished() bool { return s.loss.Load() != noLoss || s.going.Load() }

// due says whether a sweep is to begin.
func (s *sweep) due(now time.Time, holding bool) bool {
	if len(s.left) > 0 || holding {
		return false
	}
	loss := s.loss.Load()
	return loss == memoryLost || loss == keyMissing && now.Sub(s.began) >= sweepEvery
}

// begin begins to put back sources.
func (s *sweep) begin(now time.Time, all []source) {
	s.going.Store(len(all) > 0)
	s.loss.Store(noLoss)
	s.began, s.left, s.from = now, all, memory.Cursor{}
}

// current returns the source to be put back; nil: none is.
func (s *sweep) current() source {
	if len(s.left) == 0 {
		return nil
	}
	return s.left[0]
}

// reached notes up to where the current source was put back.
func (s *sweep) reached(from memory.Cursor) {
	if s.from = from; !from.Done() {
		return
	}
	s.left, s.from = s.left[1:], memory.Cursor{}
	s.going.Store(len(s.left) > 0)
}
