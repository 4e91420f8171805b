package oracle

// Held decides requests whose cost is held until their responses tell what is charged.
type Held struct {
	*Limiter
	held int64 // by the requests under way
}

// NewHeld returns an unused limiter.
func NewHeld(rules ...Rule) *Held { return &Held{Limiter: New(rules...)} }

// HeldVerdict is the result of one rule for a request beside others that are under way.
type HeldVerdict struct {
	// Admit reports whether the rule admits the request beside what is held.
	Admit bool

	// Held reports whether it would admit the request if nothing were held.
	Held bool

	// Remaining is the number of requests of cost 1 that would still pass now, after the
	// decision.
	Remaining int64

	// ResetAfter is the time after which the rule is as if unused, whatever is held.
	ResetAfter int64
}

// Begin judges a request, and holds its cost if all rules admit it.
func (h *Held) Begin(now, cost int64) (admit bool, verdicts []HeldVerdict) {
	admit = true
	for _, m := range h.rules {
		v := HeldVerdict{Admit: m.admits(now, h.held, cost)}
		v.Held = !v.Admit && m.admits(now, 0, cost)
		admit = admit && v.Admit
		verdicts = append(verdicts, v)
	}
	if admit {
		h.held += cost
	}
	for i, m := range h.rules {
		verdicts[i].Remaining = first(m.capacity(), func(passed int64) bool { return !m.admits(now, h.held+passed, 1) })
		verdicts[i].ResetAfter = resetAfter(m, now)
	}
	return admit, verdicts
}

// End ends a request that has held its cost, and charges what its response tells, whatever is
// left.
func (h *Held) End(now, cost, charge int64) {
	h.held -= cost
	if charge > 0 {
		for _, m := range h.rules {
			m.remember(now, charge, 0)
		}
	}
}

// Room returns how much can be charged before a rule owes more than its capacity. A greater
// charge is cut, of a meter to a fraction of a cost.
func (h *Held) Room(now int64) (room int64) {
	for i, m := range h.rules {
		var twice memory
		switch m := m.(type) {
		case *fixedWindow:
			t := *m
			t.limit *= 2
			twice = &t
		case *lookback:
			t := *m
			t.limit *= 2
			twice = &t
		case *bucket:
			t := *m
			t.burst *= 2
			twice = &t
		default:
			panic("a rule that delays cannot be charged afterwards")
		}
		if left := remaining(twice, now); i == 0 || left < room {
			room = left
		}
	}
	return room
}
