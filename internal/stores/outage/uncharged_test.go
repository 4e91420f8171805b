package outage

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestUncharged ends what five keys owe without charging it, for each reason. All of it is reported, by
// the reason, and nothing is charged later.
func TestUncharged(t *testing.T) {
	for why, end := range map[stores.Uncharged]func(*fake, *Fallback, *stores.Counter){
		stores.UnchargedUnknown: func(r *fake, f *Fallback, _ *stores.Counter) {
			r.breaks = errUnknown
			f.Hands.Pay(t.Context())
			r.breaks = nil
		},
		stores.UnchargedReset: func(_ *fake, f *Fallback, c *stores.Counter) {
			for k := range uint64(5) {
				f.Hands.Reset([]*stores.Counter{c, c}, key(k))
			}
		},
		"reset elsewhere": func(r *fake, f *Fallback, _ *stores.Counter) {
			r.refuses = PartDebts
			f.Hands.Pay(t.Context())
			r.refuses = 0
		},
		"reset while it is charged, in vain": func(r *fake, f *Fallback, c *stores.Counter) {
			r.breaks, r.during = errRejected, func() {
				for k := range uint64(5) {
					f.Hands.Reset([]*stores.Counter{c}, key(k))
				}
			}
			f.Hands.Pay(t.Context())
			r.breaks, r.during = nil, nil
		},
		"reset before it is known that no call charged it": func(r *fake, f *Fallback, c *stores.Counter) {
			for k := range uint64(5) {
				f.Hands.Reset([]*stores.Counter{c}, key(k)) // 2 of each
			}
			clear(r.uncharged)
			for k := range uint64(10) {
				z := &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: key(k), Tag: key(k)}, Enforced: stores.Enforced{Rules: c.Rules}, Results: make([]stores.Result, 1)}
				at, room := f.finish(z, 1)
				c.Reset(key(k))
				f.owe(z, 1, at, room)
			}
		},
		stores.UnchargedReplaced: func(_ *fake, _ *Fallback, c *stores.Counter) { _ = memory.TableOf(c).Destruct() },
		"replaced while it is charged": func(r *fake, f *Fallback, c *stores.Counter) {
			r.breaks, r.takes = errRejected, 2*handFor
			f.Hands.Pay(t.Context())
			_ = memory.TableOf(c).Destruct()
			r.breaks = nil
		},
		stores.UnchargedClosed: func(_ *fake, f *Fallback, _ *stores.Counter) { f.Hands.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			r, f, c := newFallback(t, false)
			for k := range uint64(5) {
				f.decide(c, key(k))
				f.decide(c, key(k))
			}
			end(r, f, c)
			f.Hands.Pay(t.Context())
			if why, _, _ := strings.Cut(string(why), " "); r.uncharged[stores.Uncharged(why)] != 10 || len(r.uncharged) != 1 || len(r.debts) > 0 {
				t.Errorf("%s: of 10 %v are reported, and %v charged", why, r.uncharged, r.debts)
			}
		})
	}
	r, f, _ := newFallback(t, false)
	sp := algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}
	f.decide(kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: new(bare), Spec: sp}), key(1))
	if r.uncharged[stores.UnchargedUnsupported] != 1 {
		t.Errorf("of a rule that cannot hand over %v are reported, want 1", r.uncharged)
	}
}

// TestDebtSinceAReset has a key charged as soon as a reset has ended its debt: that is owed.
func TestDebtSinceAReset(t *testing.T) {
	r, f, c := newFallback(t, false)
	f.decide(c, key(1))
	f.decide(c, key(1))
	r.then = func() { f.decide(c, key(1)) }
	f.Hands.Reset([]*stores.Counter{c}, key(1))
	if f.Hands.Pay(t.Context()); r.uncharged[stores.UnchargedReset] != 2 || len(r.uncharged) != 1 || r.debts[key(1)] != 1 {
		t.Errorf("of 2 before the reset %v are reported, and of 1 after it %d charged", r.uncharged, r.debts[key(1)])
	}
}

// TestDebtThatComesBackAfterAReset has a call rejected with what a key owed before a reset, once the key owes again.
// Only what it was charged since is charged in Redis.
func TestDebtThatComesBackAfterAReset(t *testing.T) {
	r, f, c := newFallback(t, false)
	f.decide(c, key(1))
	f.decide(c, key(1))
	r.breaks, r.during = errRejected, func() {
		r.now++
		f.Hands.Reset([]*stores.Counter{c}, key(1))
		r.now++
		f.decide(c, key(1))
	}
	f.Hands.Pay(t.Context())
	r.breaks, r.during = nil, nil
	if f.Hands.Pay(t.Context()); r.uncharged[stores.UnchargedReset] != 2 || len(r.uncharged) != 1 || r.debts[key(1)] != 1 {
		t.Errorf("of 2 before the reset %v are reported, and of 1 after it %d charged", r.uncharged, r.debts[key(1)])
	}
}
