package metrics

// Cause is why a request is not admitted, in logs, metrics and answers.
type Cause uint8

// The causes.
const (
	CauseNone      Cause = iota // it is admitted
	CauseRule                   // a rule has less left than the request costs
	CauseBlocked                // an earlier denial blocks the key
	CauseInFlight               // as many requests as in_flight are under way, or wait for their place before it
	CauseDuplicate              // it repeats a request that was admitted
	CauseMissing                // a part of its key is empty
	CauseRepeated               // a part of its key stands more than once
	CauseHeld                   // requests under way hold the rest of the limit
	CauseTooLarge               // it costs more than the capacity of a rule
	CauseShare                  // this instance is alone, and its share of the limit is used up
	CauseOverflow               // the zone is full, and the counter that the key shares with others is used up
	CauseWaiting                // too many requests wait
	CauseOtherZone              // the zone admits it, and another does not
	CauseStore                  // the store is unavailable, and on_failure is deny
	CauseOverload               // the upstream has as many requests as it serves best, and this one waited in vain, or could not
	CauseLeft                   // its client left while it waited: it counts apart, and not as denied
	numCauses
)

// String returns the cause as logs, metrics and answers show it; empty: there is none.
func (c Cause) String() string {
	return [...]string{
		"", "rule", "blocked", "in_flight", "duplicate", "key_missing", "key_repeated", "held", "too_large",
		"share", "overflow", "waiting", "other_zone", "store", "overload", "left",
	}[c]
}
