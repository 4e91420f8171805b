package algorithms

import "fmt"

// windowed is what the algorithms that count in windows have in common.
type windowed struct {
	limit, window int64
}

func (c *windowed) Limit() int64    { return c.limit }
func (c *windowed) Window() int64   { return c.window }
func (c *windowed) Capacity() int64 { return c.limit }

// judge compares what is used with the limit. retry is asked for only on a
// denial that waiting can mend.
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

// owed is how much of a charge after the fact is taken, so that the debt stays
// within one further limit.
func (c *windowed) owed(used, cost int64) int64 {
	return min(cost, max(0, 2*c.limit-used))
}

// CheckLimit checks what all algorithms want of a limit and a window, and that a
// rule which holds no more than its limit could admit the cost.
func CheckLimit(sp Spec) error {
	if err := sp.check(); err != nil {
		return err
	}
	if sp.Cost > sp.Limit {
		return fmt.Errorf("cost %d is above the limit %d: no request could pass", sp.Cost, sp.Limit)
	}
	return nil
}
