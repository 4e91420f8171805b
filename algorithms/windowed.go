package algorithms

import "fmt"

// windowed is embedded in the rules that count in windows.
type windowed struct {
	limit, window int64
}

func (c *windowed) Limit() int64    { return c.limit }
func (c *windowed) Window() int64   { return c.window }
func (c *windowed) Capacity() int64 { return c.limit }

// judge compares used with the limit. It calls retry only for a denial that waiting
// resolves.
func (c *windowed) judge(used, cost, held int64, retry func() int64) Verdict {
	switch {
	case cost > c.limit:
		return Verdict{Retry: Never}
	case used > c.limit-cost:
		return Verdict{Retry: retry()}
	case held > c.limit-cost-used:
		return Verdict{Held: true}
	}
	return Verdict{Admit: true}
}

// overdraft returns how much of a charge after the response is taken, so that at most
// one limit is overdrawn.
func (c *windowed) overdraft(used, cost int64) int64 {
	return min(cost, max(0, 2*c.limit-used))
}

// CheckLimit checks the limit and the window, and that the cost is not above the
// limit.
func CheckLimit(sp Spec) error {
	if err := sp.check(); err != nil {
		return err
	}
	if sp.Cost > sp.Limit {
		return fmt.Errorf("cost %d is above the limit %d: no request could pass; want a lower cost or a higher limit", sp.Cost, sp.Limit)
	}
	return nil
}

// Supersedes implements [Handover]: counts do not depend on the limit.
func (c *windowed) Supersedes(State, []int64) bool { return false }
