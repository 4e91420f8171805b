// Package stores defines what a store of rate limit counts is: the [Check] that a
// request makes, the results that it gets, and the [Store] that decides it. A store
// that instances share is a [Shared] store, and in a configuration a [Module], which
// another Go module may bring. [Across] decides a check whose zones lie in several
// stores. A store does not know HTTP.
package stores

import "context"

// Store decides checks.
type Store interface {
	// Decide decides all zones of the check at one instant. If every zone that
	// enforces its rules admits, it charges them. It always answers; Check.Mode says
	// who decided.
	Decide(ctx context.Context, check *Check)

	// Finish releases the permit of a zone, if it holds one, and charges cost
	// charge unconditionally. Without a permit and with a charge of 0 it does
	// nothing.
	Finish(ctx context.Context, z *ZoneCheck, charge int64)
}

// Peek decides one zone as [Store.Decide] would and charges nothing. It returns
// who decided, and when by the store's clock. The zone has no results if nobody did.
func Peek(ctx context.Context, s Store, z *ZoneCheck) (m Mode, now int64) {
	check := Check{Peek: true, Zones: []ZoneCheck{*z}}
	s.Decide(ctx, &check)
	*z = check.Zones[0]
	return check.Mode, check.Now
}

// Mode says who decided a check. A higher mode is the one to report if several
// stores took part.
type Mode uint8

// Who decided a check.
const (
	ModeLocal    Mode = iota // this process, whose counts are the only ones
	ModeShared               // the store that instances share
	ModeFallback             // this process with its share of the limits, because the store is unavailable
	ModeAllow                // nobody: the store is unavailable and every request is admitted
	ModeDeny                 // nobody: the store is unavailable and every request is denied
)

// String returns the mode as metrics, logs and the admin API show it.
func (m Mode) String() string { return [...]string{"local", "shared", "fallback", "allow", "deny"}[m] }
