package stores

import "github.com/dianalimiter/diana/algorithms"

// Block is the block of a key: until it ends, its zone denies every request of the key
// without judging it.
type Block struct {
	// Until is when the block ends, in microseconds on the clock of the decision. 0: the
	// key is not blocked.
	Until int64

	// Span is how long the block lasts in total, in microseconds.
	Span int64

	// Rule is the index of the rule that blocks.
	Rule int32

	// Step is the number of this block among those that follow each other, from 1, if blocks of the
	// zone grow; otherwise 0. If the key is not blocked: the step of the last block that still
	// lengthens the next.
	Step int32

	// Started says that this decision started the block.
	Started bool
}

// GrowsWithin is for how many microseconds after its end a block makes the next one of its key
// longer, if blocks of the zone grow.
const GrowsWithin = 24 * 60 * 60 * 1_000_000

// LastStep returns the step from which on no block of the zone grows.
func (c *Counter) LastStep() int32 {
	most := 0
	for _, g := range c.Grows {
		most = max(most, len(g))
	}
	return int32(1 + most)
}

// blockAt returns for how long a rule blocks at least, by the step of the block; 0: it does not.
func (c *Counter) blockAt(rule int, step int32) int64 {
	if step > 1 && c.Grows != nil && len(c.Grows[rule]) > 0 {
		return c.Grows[rule][min(int(step)-1, len(c.Grows[rule]))-1]
	}
	return c.Blocks[rule]
}

// Guarded reports whether the zone is to be decided with the block of its key.
func (z *ZoneCheck) Guarded() bool { return z.Counter.Blocks != nil && !z.IgnoreBlock }

// Blocked reports whether the zone's rules were not judged, because the key was blocked.
func (z *ZoneCheck) Blocked() bool { return z.Block.Until != 0 && !z.Block.Started }

// DenyBlocked sets the results of a zone whose key is blocked.
func (z *ZoneCheck) DenyBlocked(now int64) {
	z.Block.Rule = z.Counter.BlockingRule(z.Block.Rule)
	z.Admits, z.Full = false, false
	left := z.Block.Until - now
	for i := range z.Results {
		z.Results[i] = Result{Verdict: algorithms.Verdict{Admit: true}, Reset: left, More: left}
	}
	z.Results[z.Block.Rule].Verdict = algorithms.Verdict{Retry: left}
}

// BlockingRule returns the index of the rule that a block is said to be of: the rule that
// started it may have been replaced since.
func (c *Counter) BlockingRule(rule int32) int32 {
	if rule >= 0 && int(rule) < len(c.Blocks) && c.Blocks[rule] > 0 {
		return rule
	}
	for i, d := range c.Blocks {
		if d > 0 {
			return int32(i)
		}
	}
	return 0
}

// StartedBlock returns the block that the zone's verdicts start; false if they start none.
// Neither a cost above the capacity of a rule nor held costs do.
func (z *ZoneCheck) StartedBlock(now int64) (b Block, ok bool) {
	step := int32(0)
	if z.Counter.Grows != nil {
		step = min(z.Block.Step+1, z.Counter.LastStep())
	}
	return z.StartedStep(now, step)
}

// StartedStep is StartedBlock for a block of a step.
func (z *ZoneCheck) StartedStep(now int64, step int32) (b Block, ok bool) {
	for i := range z.Counter.Blocks {
		v, d := &z.Results[i].Verdict, z.Counter.blockAt(i, step)
		if d == 0 || v.Admit || v.Held || v.Retry == algorithms.Never {
			continue
		}
		if d = max(d, v.Retry); d > b.Span {
			b = Block{Until: now + d, Span: d, Rule: int32(i), Step: step, Started: true}
		}
	}
	return b, b.Started
}

// StartBlock sets the zone's block, which its verdicts started. Nothing can be admitted
// before it ends.
func (z *ZoneCheck) StartBlock(b Block, now int64) {
	z.Block = b
	z.Results[b.Rule].Retry = b.Until - now
	for i := range z.Results {
		res := &z.Results[i]
		if res.Remaining > 0 { // but for the block
			res.More = 0
		}
		left := z.Block.Until - now
		res.Remaining, res.Reset, res.More = 0, max(res.Reset, left), max(res.More, left)
	}
}
