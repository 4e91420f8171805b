package redis

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// replyCase is a zone with random rules and states, and what the script would
// answer to an ask of it.
type replyCase struct {
	*testing.T
	r      *rand.Rand
	it     stores.ZoneCheck
	now    int64
	states []algorithms.State // whole ones, as the local store keeps them
	held   int64
	places int64
	logs   bool
}

func newReplyCase(t *testing.T, seed uint64) *replyCase {
	r := rand.New(rand.NewPCG(seed, 4))
	c := &replyCase{T: t, r: r, now: 1_700_000_000_000_000 + r.Int64N(1_000_000)}
	hold := r.IntN(4) == 0
	var specs []storestest.RuleSpec
	for range r.IntN(5) {
		specs = append(specs, storestest.RandomRule(r, !hold, hold))
	}
	inFlight := int64(0)
	if r.IntN(3) == 0 {
		inFlight = 1 + r.Int64N(5)
	}
	counter := storestest.NewTestCounter(t, "z", inFlight, hold, nil, specs...)
	c.it = stores.ZoneCheck{Counter: counter, Cost: 1 + r.Int64N(4), Rules: counter.Rules, Key: stores.Key{Hi: 1, Lo: 2}, Tag: stores.Key{Hi: 1, Lo: 2}}
	if place, cost := c.it.Holds(); place {
		c.places = r.Int64N(7)
		if cost {
			c.held = r.Int64N(20)
		}
	}
	c.use()
	return c
}

// use charges the rules now and then until the present.
func (c *replyCase) use() {
	n := c.r.IntN(30)
	for _, rule := range c.it.Rules {
		_, grows := rule.(algorithms.Growing)
		c.logs = c.logs || grows
		s := make(algorithms.State, rule.Words())
		at := c.now - c.r.Int64N(50_000)
		for range n {
			s = chargeRule(rule, s, at, 1+c.r.Int64N(3), 0)
			at += c.r.Int64N(c.now - at + 1)
		}
		c.states = append(c.states, s)
	}
}

// chargeRule takes a cost that a rule admits, and gives it room for that.
func chargeRule(rule algorithms.Rule, s algorithms.State, at, cost, turn int64) algorithms.State {
	if !rule.Judge(s, at, cost, 0).Admit {
		return s
	}
	if g, ok := rule.(algorithms.Growing); ok {
		if need := g.Need(s, at, cost); need > len(s) {
			wider := make(algorithms.State, need)
			if len(s) > 1 {
				g.Move(wider, s)
			}
			s = wider
		}
	}
	rule.Charge(s, at, cost, turn)
	return s
}

// view is what the script reports of the states, laid out as scripts/README.md
// has it. What was never used is not in Redis.
func (c *replyCase) view() (b []byte) {
	used := false
	for _, s := range c.states {
		for _, w := range s {
			used = used || w != 0
		}
	}
	if !used {
		return nil
	}
	if !c.logs {
		b = appendDouble(b, float64(c.now/1000+1998)) // when it expires
	}
	var views []byte
	for i, rule := range c.it.Rules {
		if _, ok := rule.(algorithms.Growing); ok {
			for _, w := range c.report(rule, c.states[i]) {
				views = appendDouble(views, float64(w))
			}
			b = append(b, make([]byte, 32)...) // where the ring is
			continue
		}
		for _, w := range c.states[i] {
			b = appendDouble(b, float64(w))
		}
	}
	return append(b, views...)
}

// report is what the script says of a log.
func (c *replyCase) report(rule algorithms.Rule, s algorithms.State) algorithms.State {
	free, reset := rule.Numbers(s, c.now)
	if s[0] == 0 {
		return algorithms.State{free, 0, 0, 0}
	}
	leaves := int64(0)
	if v := rule.Judge(s, c.now, c.it.Cost, 0); v.Retry > 0 {
		leaves = c.now + v.Retry
	}
	last := c.now - rule.Window() - 1
	if reset > 0 {
		last = c.now + reset - rule.Window()
	}
	return algorithms.State{free, leaves, last, 1}
}

func appendDouble(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

// reply is the whole answer, and whether it admits.
func (c *replyCase) reply() (b []byte, admits bool) {
	admits = true
	for i, rule := range c.it.Rules {
		admits = admits && rule.Judge(c.states[i], c.now, c.it.Cost, c.held).Admit
	}
	flags := byte(0)
	if n := c.it.Counter.InFlight; n > 0 && c.places >= n {
		flags, admits = flags|8, false
	}
	if admits {
		flags |= 1 | 2
	}
	view := c.view()
	if len(view) > 0 {
		flags |= 32
	}
	b = append(append(b, flags), view...)
	if place, _ := c.it.Holds(); place {
		b = appendDouble(appendDouble(b, float64(c.held)), float64(c.places))
	}
	return b, admits
}

// read has the product read an answer to a copy of the ask.
func (c *replyCase) read(b []byte, now int64) (*stores.ZoneCheck, *reply, error) {
	check := &stores.Check{Zones: []stores.ZoneCheck{c.it}}
	check.ResetResults()
	r := &reply{b: string(b)}
	_, err := r.readZone(&check.Zones[0], now)
	if err == nil || errors.Is(err, errDisagree) {
		check.Settle()
		countResults(&check.Zones[0], now, check.Turn)
	}
	return &check.Zones[0], r, err
}

// checkValid reads the script's answer and compares it with what the rules say
// of the whole states.
func (c *replyCase) checkValid(b []byte, admits bool) {
	c.Helper()
	z, r, err := c.read(b, c.now)
	if err != nil || len(r.b) > 0 || z.Admits != admits || z.Charged != admits {
		c.Fatalf("%x is read as admits %v charged %v, %d bytes left, %v: want admits %v", b, z.Admits, z.Charged, len(r.b), err, admits)
	}
	_, holds := z.Holds()
	turn := int64(0)
	for i, rule := range z.Rules {
		v := rule.Judge(c.states[i], c.now, z.Cost, c.held)
		if z.Results[i].Verdict != v {
			c.Errorf("rule %d (%T): %+v, want %+v", i, rule, z.Results[i].Verdict, v)
		}
		turn = max(turn, v.Delay)
	}
	for i, rule := range z.Rules {
		s, held := c.states[i], c.held
		if admits && holds {
			held += z.Cost
		} else if admits {
			s = chargeRule(rule, s, c.now, z.Cost, turn)
		}
		remaining, reset := rule.Numbers(s, c.now)
		if remaining = max(0, remaining-held); z.Results[i].Remaining != remaining || z.Results[i].Reset != reset {
			c.Errorf("rule %d (%T): %d left, reset in %d, want %d and %d", i, rule, z.Results[i].Remaining, z.Results[i].Reset, remaining, reset)
		}
	}
}

// refused checks that what is no answer of the script's is taken for none: a
// mere disagreement would let its verdict stand.
func (c *replyCase) refused(what string, b []byte) {
	c.Helper()
	if z, _, err := c.read(b, c.now); err == nil || errors.Is(err, errDisagree) {
		c.Errorf("%s: %x is read as admits %v, %v", what, b, z.Admits, err)
	}
}

// integral says whether all of b is doubles that hold integers which Lua
// calculates exactly.
func integral(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		f := math.Float64frombits(binary.LittleEndian.Uint64(b))
		if _, part := math.Modf(f); math.IsNaN(f) || math.IsInf(f, 0) || part != 0 || math.Abs(f) > 9007199254740992 {
			return false
		}
	}
	return len(b) == 0
}

// wellFormed says whether b begins with an answer to c's ask, by its form
// alone.
func (c *replyCase) wellFormed(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	seen := b[0]&32 != 0
	b = b[1:]
	take := func(n int) []byte {
		if !seen {
			n = 0
		}
		if n > len(b) {
			seen, b = false, nil
			return []byte{1} // no integers
		}
		got := b[:n]
		b = b[n:]
		return got
	}
	if !c.logs {
		take(8)
	}
	ok, logs := true, 0
	for _, rule := range c.it.Rules {
		if g, grows := rule.(algorithms.Growing); grows {
			logs += 8 * g.View().Words()
			ok = len(take(8*g.View().Words())) != 1 && ok
		} else {
			ok = integral(take(8*rule.Words())) && ok
		}
	}
	ok = integral(take(logs)) && ok
	if place, _ := c.it.Holds(); place {
		return ok && len(b) >= 16 && integral(b[:16])
	}
	return ok
}

// FuzzReply reads anything as the script's answer, and answers that are the
// script's, whole, cut short, grown and with a word changed. The seed chooses
// the rules and what was used of them.
func FuzzReply(f *testing.F) {
	for seed := range uint64(60) {
		f.Add([]byte{}, seed, uint16(seed), uint16(seed/2), math.Float64bits(0.5), int64(1_700_000_000_000_000))
		f.Add([]byte("\x03\x00\x00\x00\x00"), seed, uint16(seed*7), uint16(seed), math.Float64bits(math.NaN()), int64(0))
		f.Add([]byte("\x21\xff\xff\xff\xff"), seed, uint16(seed*31), uint16(seed), math.Float64bits(1<<53+2), int64(-1))
	}
	for _, v := range []float64{math.Inf(1), math.Inf(-1), -1, 1 << 53, -1 << 53, 1e300, 5e-324, math.Copysign(0, -1)} {
		for seed := range uint64(12) {
			f.Add([]byte{}, seed, uint16(0), uint16(seed), math.Float64bits(v), int64(1<<53))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, cut, word uint16, bits uint64, now int64) {
		c := newReplyCase(t, seed)
		valid, admits := c.reply()
		if !c.wellFormed(valid) {
			t.Fatalf("%x is no answer to the test itself", valid)
		}
		c.checkValid(valid, admits)
		c.refused("cut short", valid[:int(cut)%len(valid)])
		c.checkAny(in, now)
		if n := (len(valid) - 1) / 8; n > 0 {
			changed := append([]byte(nil), valid...)
			binary.LittleEndian.PutUint64(changed[1+8*(int(word)%n):], bits)
			c.checkAny(changed, c.now)
			c.checkAny(changed, now)
			whole := float64(int64(bits) >> 10) // in the range of what is taken
			binary.LittleEndian.PutUint64(changed[1+8*(int(word)%n):], math.Float64bits(whole))
			c.checkAny(changed, c.now)
			c.checkAny(changed, now)
		}
	})
}

// checkAny reads what may be an answer: if it is taken, it has the form of one,
// and what it comes to can be shown to a client.
func (c *replyCase) checkAny(b []byte, now int64) {
	c.Helper()
	if now > 1<<53 || now < -1<<53 {
		return // refused before it comes to a zone
	}
	z, _, err := c.read(b, now)
	if err != nil && !errors.Is(err, errDisagree) {
		return
	}
	if !c.wellFormed(b) {
		c.Errorf("%x is taken for an answer: %v", b, err)
	}
	for i, res := range z.Results {
		if res.Remaining < 0 || res.Reset < 0 {
			c.Errorf("rule %d (%T): %x comes to %d left, reset in %d", i, z.Rules[i], b, res.Remaining, res.Reset)
		}
	}
}
