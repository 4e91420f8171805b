package algorithms

import (
	"fmt"
	"time"
)

// Leasable is an [Algorithm] whose rules can be compiled with a [Spec.Lease]. An
// instance then charges part of the limit in advance and spends it within the
// lease. What is left beside the lease is known only of a [Handover].
type Leasable interface {
	Algorithm

	// LeasedKind returns the Kind of rules with a lease, whose states may be longer
	// or ahead of the clock. ok reports whether the options allow a lease.
	LeasedKind() (kind string, ok bool)
}

// Lasts returns for how many microseconds from now the cost that a rule was just
// charged in advance may be spent. s is the state after the charge.
func Lasts(r Rule, s State, now, lease int64) int64 {
	if e, ok := r.(ending); ok {
		return min(lease, e.end(s, now)-now)
	}
	return lease
}

// ending is a [Rule] whose charges end at a known time, which may come before the
// end of a lease.
type ending interface {
	end(s State, now int64) int64
}

// errLease returns the error of a lease that is too long for a rule.
func errLease(lease int64, why string, v ...any) error {
	return fmt.Errorf("lease %v: %s; want a shorter lease, or for this zone a store without one",
		time.Duration(lease)*time.Microsecond, fmt.Sprintf(why, v...))
}
