package oracle

// Blocking decides requests of one key by rules of which some block the key once they deny.
type Blocking struct {
	// Blocks are for how long each rule blocks at least; 0: it does not.
	Blocks []int64

	// Grows are, by rule, for how long the blocks last at least that follow the first within a
	// day; nil: no block grows.
	Grows [][]int64

	rules []Rule
	*Limiter
	until int64 // when the block ends
	by    int   // the rule that blocks
	row   int   // how many blocks followed each other, the last included; 0: they do not grow
}

// NewBlocking returns an unused limiter that blocks.
func NewBlocking(blocks []int64, rules ...Rule) *Blocking {
	return &Blocking{Blocks: blocks, rules: rules, Limiter: New(rules...)}
}

// Reset forgets the requests and the block of the key.
func (b *Blocking) Reset() {
	b.Limiter, b.until, b.row = New(b.rules...), 0, 0
}

// Decide judges a request, unless the key is blocked, and may block it.
func (b *Blocking) Decide(now, cost int64) (bool, []Verdict) {
	if verdicts := b.blocked(now); verdicts != nil {
		return false, verdicts
	}
	admit, verdicts := b.Limiter.Decide(now, cost)
	if !admit {
		b.start(now, cost, verdicts)
	}
	return admit, verdicts
}

// Peek returns the verdicts of a request that is not charged and starts no block.
func (b *Blocking) Peek(now, cost int64) []Verdict {
	if verdicts := b.blocked(now); verdicts != nil {
		return verdicts
	}
	return b.Limiter.Peek(now, cost)
}

// blocked returns the verdicts of a key that is blocked; nil: it is not, or no rule blocks.
func (b *Blocking) blocked(now int64) (verdicts []Verdict) {
	by, first := b.by, -1
	for i := len(b.Blocks) - 1; i >= 0; i-- {
		if b.Blocks[i] > 0 {
			first = i
		}
	}
	if first < 0 || now >= b.until {
		return nil
	}
	if b.Blocks[by] == 0 { // the rule that started it blocks no more
		by = first
	}
	for i := range b.Blocks {
		v := Verdict{Admit: i != by, ResetAfter: b.until - now}
		if i == by {
			v.RetryAfter = b.until - now
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// start blocks the key if a rule that blocks denies, though it would ever admit the request:
// until that rule admits it, and for as long as the rule says. The last to end counts.
func (b *Blocking) start(now, cost int64, verdicts []Verdict) {
	longest, row := int64(0), b.next(now)
	for i := range b.Blocks {
		least := b.least(i, row)
		if v := verdicts[i]; least == 0 || v.Admit || v.RetryAfter == Never {
			continue
		}
		wait := after(func(d int64) bool { return d >= least && b.Limiter.rules[i].admits(now+d, 0, cost) })
		if wait > longest {
			longest, b.until, b.by = wait, now+wait, i
		}
	}
	if longest == 0 {
		return
	}
	b.row = row
	verdicts[b.by].RetryAfter = longest
	for i := range verdicts {
		verdicts[i].Remaining, verdicts[i].ResetAfter = 0, max(verdicts[i].ResetAfter, longest)
	}
}

const day = 24 * 60 * 60 * 1_000_000

// next returns how many blocks follow each other if one starts now.
func (b *Blocking) next(now int64) int {
	most := 0
	for _, g := range b.Grows {
		most = max(most, 1+len(g))
	}
	if b.row > 0 && now <= b.until+day {
		return min(b.row+1, most)
	}
	return min(1, most)
}

// least returns for how long a rule blocks at least, as the one of blocks in a row.
func (b *Blocking) least(rule, row int) int64 {
	all := []int64{b.Blocks[rule]}
	if b.Grows != nil {
		all = append(all, b.Grows[rule]...)
	}
	return all[max(0, min(row, len(all))-1)]
}
