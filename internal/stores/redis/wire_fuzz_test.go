package redis

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// replyCase is a zone with random rules and states, and the script's reply to a
// check of it.
type replyCase struct {
	*testing.T
	r       *rand.Rand
	zone    stores.ZoneCheck
	now     int64
	states  []algorithms.State // complete, as in the local store
	held    int64
	permits int64
	logs    bool
}

func newReplyCase(t *testing.T, seed uint64) *replyCase {
	r := rand.New(rand.NewPCG(seed, 4))
	c := &replyCase{T: t, r: r, now: 1_700_000_000_000_000 + r.Int64N(1_000_000)}
	hold := r.IntN(4) == 0
	var specs []storekit.RuleSpec
	for range r.IntN(5) {
		specs = append(specs, storekit.RandomRule(r, !hold, hold))
	}
	inFlight := int64(0)
	if r.IntN(3) == 0 {
		inFlight = 1 + r.Int64N(5)
	}
	counter := kit.NewTestCounter(t, "z", inFlight, hold, nil, specs...)
	c.zone = stores.ZoneCheck{Counter: counter, Cost: 1 + r.Int64N(4), Enforced: stores.Enforced{Rules: counter.Rules}, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 2}, Tag: stores.Key{Hi: 1, Lo: 2}}}
	if permit, cost := c.zone.Holds(); permit {
		c.permits = r.Int64N(7)
		if cost {
			c.held = r.Int64N(20)
		}
	}
	c.charge()
	return c
}

// charge charges the rules several times until now.
func (c *replyCase) charge() {
	n := c.r.IntN(30)
	for _, rule := range c.zone.Rules {
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

// chargeRule charges a cost if the rule admits it, and returns the state, which may
// have grown.
func chargeRule(rule algorithms.Rule, s algorithms.State, at, cost, turn int64) algorithms.State {
	if !rule.Judge(s, at, cost, 0).Admit {
		return s
	}
	if g, ok := rule.(algorithms.Growing); ok {
		if need := g.Need(s, at, cost); need > len(s) {
			larger := make(algorithms.State, need)
			if len(s) > 1 {
				g.Move(larger, s)
			}
			s = larger
		}
	}
	rule.Charge(s, at, cost, turn)
	return s
}

// view encodes the states as scripts/README.md describes. A key that was never
// charged is not in Redis, and has no view.
func (c *replyCase) view() (b []byte) {
	charged := false
	for _, s := range c.states {
		for _, w := range s {
			charged = charged || w != 0
		}
	}
	if !charged {
		return nil
	}
	if !c.logs {
		b = appendDouble(b, float64(c.now/1000+1998)) // the expiry
	}
	var logViews []byte
	for i, rule := range c.zone.Rules {
		if _, ok := rule.(algorithms.Growing); ok {
			for _, w := range c.report(rule, c.states[i]) {
				logViews = appendDouble(logViews, float64(w))
			}
			b = append(b, make([]byte, 32)...) // the head of the ring
			continue
		}
		for _, w := range c.states[i] {
			b = appendDouble(b, float64(w))
		}
	}
	return append(b, logViews...)
}

// report returns what the script reports of a log.
func (c *replyCase) report(rule algorithms.Rule, s algorithms.State) algorithms.State {
	free, reset := rule.Numbers(s, c.now)
	if s[0] == 0 {
		view := make(algorithms.State, rule.(algorithms.Growing).View().Words())
		view[0] = free
		return view
	}
	leaves := int64(0)
	if v := rule.Judge(s, c.now, c.zone.Cost, 0); v.Retry > 0 {
		leaves = c.now + v.Retry
	}
	last := c.now - rule.Window() - 1
	if reset > 0 {
		last = c.now + reset - rule.Window()
	}
	view := make(algorithms.State, rule.(algorithms.Growing).View().Words())
	view[0], view[1], view[2], view[3] = free, leaves, last, 1
	if v := rule.Judge(s, c.now, free+1, 0); v.Retry > 0 {
		view[4] = c.now + v.Retry
	}
	for i := range 8 { // as if all were charged at the same time
		if int64(i) < rule.Limit()-free {
			view[5+i] = last
		}
	}
	return view
}

func appendDouble(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
}

// reply encodes the whole reply, and returns whether it admits.
func (c *replyCase) reply() (b []byte, admits bool) {
	admits = true
	for i, rule := range c.zone.Rules {
		admits = admits && rule.Judge(c.states[i], c.now, c.zone.Cost, c.held).Admit
	}
	flags := byte(0)
	if n := c.zone.Counter.InFlight; n > 0 && c.permits >= n {
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
	if permit, _ := c.zone.Holds(); permit {
		b = appendDouble(appendDouble(b, float64(c.held)), float64(c.permits))
	}
	return b, admits
}

// read reads a reply into a copy of the zone check.
func (c *replyCase) read(b []byte, now int64) (*stores.ZoneCheck, *reply, error) {
	check := &stores.Check{Zones: []stores.ZoneCheck{c.zone}}
	check.ResetResults()
	r := &reply{b: string(b)}
	_, err := r.readZone(&check.Zones[0], now)
	if err == nil || errors.Is(err, errDisagree) {
		check.Conclude()
		countResults(&check.Zones[0], now, check.Turn)
	}
	return &check.Zones[0], r, err
}

// checkValid reads a valid reply and compares the results with those of the rules
// on the complete states.
func (c *replyCase) checkValid(b []byte, admits bool) {
	c.Helper()
	z, r, err := c.read(b, c.now)
	if err != nil || len(r.b) > 0 || z.Admits != admits || z.Charged != admits {
		c.Fatalf("reply %x: admits %v charged %v, %d bytes left, %v: want admits %v", b, z.Admits, z.Charged, len(r.b), err, admits)
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
			c.Errorf("rule %d (%T): remaining %d, reset %d, want %d and %d", i, rule, z.Results[i].Remaining, z.Results[i].Reset, remaining, reset)
		}
	}
}

// checkRejected fails the test if an invalid reply is accepted, or reported as a
// mere disagreement, with which its verdict would be used.
func (c *replyCase) checkRejected(what string, b []byte) {
	c.Helper()
	if z, _, err := c.read(b, c.now); err == nil || errors.Is(err, errDisagree) {
		c.Errorf("%s reply %x: admits %v, %v, want it rejected", what, b, z.Admits, err)
	}
}

// integral says whether b consists of doubles that are integers of at most 53 bits.
func integral(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		f := math.Float64frombits(binary.LittleEndian.Uint64(b))
		if _, part := math.Modf(f); math.IsNaN(f) || math.IsInf(f, 0) || part != 0 || math.Abs(f) > 9007199254740992 {
			return false
		}
	}
	return len(b) == 0
}

// wellFormed says whether b begins with a reply that is syntactically valid.
func (c *replyCase) wellFormed(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	seen := b[0]&32 != 0
	b = b[1:]
	next := func(n int) []byte {
		if !seen {
			n = 0
		}
		if n > len(b) {
			seen, b = false, nil
			return []byte{1} // not integral
		}
		got := b[:n]
		b = b[n:]
		return got
	}
	if !c.logs {
		next(8)
	}
	ok, logs := true, 0
	for _, rule := range c.zone.Rules {
		if g, grows := rule.(algorithms.Growing); grows {
			logs += 8 * g.View().Words()
			ok = len(next(8*g.Header())) != 1 && ok
		} else {
			ok = integral(next(8*rule.Words())) && ok
		}
	}
	ok = integral(next(logs)) && ok
	if permit, _ := c.zone.Holds(); permit {
		return ok && len(b) >= 16 && integral(b[:16])
	}
	return ok
}

// FuzzReply reads arbitrary bytes as a reply of the script, and valid replies,
// complete, truncated, and with one word changed. The seed chooses the rules and
// their states.
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
			t.Fatalf("reply %x of the test is not well-formed", valid)
		}
		c.checkValid(valid, admits)
		c.checkRejected("truncated", valid[:int(cut)%len(valid)])
		c.checkAny(in, now)
		if n := (len(valid) - 1) / 8; n > 0 {
			changed := append([]byte(nil), valid...)
			binary.LittleEndian.PutUint64(changed[1+8*(int(word)%n):], bits)
			c.checkAny(changed, c.now)
			c.checkAny(changed, now)
			integer := float64(int64(bits) >> 10) // in the range that is accepted
			binary.LittleEndian.PutUint64(changed[1+8*(int(word)%n):], math.Float64bits(integer))
			c.checkAny(changed, c.now)
			c.checkAny(changed, now)
		}
	})
}

// checkAny reads arbitrary bytes. A reply that is accepted is well-formed, and its
// results are not negative.
func (c *replyCase) checkAny(b []byte, now int64) {
	c.Helper()
	if now > 1<<53 || now < -1<<53 {
		return // rejected before the zones are read
	}
	z, _, err := c.read(b, now)
	if err != nil && !errors.Is(err, errDisagree) {
		return
	}
	if !c.wellFormed(b) {
		c.Errorf("reply %x is accepted: %v, want it rejected", b, err)
	}
	for i, res := range z.Results {
		if res.Remaining < 0 || res.Reset < 0 {
			c.Errorf("rule %d (%T): reply %x: remaining %d, reset %d, want none negative", i, z.Rules[i], b, res.Remaining, res.Reset)
		}
	}
}
