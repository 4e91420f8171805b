package algorithms

import (
	"fmt"
	"time"
)

// Leasable is an [Algorithm] whose rules can be compiled with a [Spec.Lease]. Part
// of a limit is then charged at once and spent by one instance within the lease.
type Leasable interface {
	Algorithm

	// LeasedKind is the Kind of rules with a lease, whose states may be longer
	// or lie ahead; ok says whether the options allow one.
	LeasedKind() (kind string, ok bool)
}

// Lasts is for how many microseconds from now what a rule with a lease was just
// charged may be spent. s is its state after that.
func Lasts(r Rule, s State, now, lease int64) int64 {
	if f, ok := r.(*fixedWindow); ok {
		_, end := f.used(s, now)
		return min(lease, end-now)
	}
	return lease
}

// errLease says that a lease is too long for a rule.
func errLease(lease int64, why string, v ...any) error {
	return fmt.Errorf("lease %v: %s; want a shorter lease, or for this zone a store without one",
		time.Duration(lease)*time.Microsecond, fmt.Sprintf(why, v...))
}

// LeasedKind implements [Leasable].
func (g *GCRA) LeasedKind() (string, bool) { return g.Kind(), true }

// LeasedKind implements [Leasable].
func (b *TokenBucket) LeasedKind() (string, bool) { return b.Kind(), true }

// LeasedKind implements [Leasable]: a queue that delays has a turn for each
// request.
func (b *LeakyBucket) LeasedKind() (string, bool) { return b.Kind(), b.NoDelay }

// LeasedKind implements [Leasable].
func (f *FixedWindow) LeasedKind() (string, bool) { return f.Kind(), true }

// LeasedKind implements [Leasable]: there is one counter more.
func (w *SlidingWindow) LeasedKind() (string, bool) { return w.Kind() + " leased", true }

// LeasedKind implements [Leasable]: stamps lie ahead.
func (l *SlidingLog) LeasedKind() (string, bool) { return l.Kind() + " leased", true }

var _ = []Leasable{(*GCRA)(nil), (*TokenBucket)(nil), (*LeakyBucket)(nil), (*FixedWindow)(nil), (*SlidingWindow)(nil), (*SlidingLog)(nil)}
