package stores

import (
	"context"
	"slices"
	"time"
)

// Across decides a check whose zones lie in several stores. of holds the store
// of each zone. The stores do not decide at one instant, but the guarantee is the
// same: all stores but the last hold the cost until the last has decided, so
// that either every zone is charged or none, and no bound is exceeded meanwhile.
func Across(ctx context.Context, check *Check, of []Store) {
	groups := groupByStore(check, of)
	ctx, cancel := withTimeout(ctx, groups)
	defer cancel()
	check.Admitted, check.Mode, check.Turn = true, ModeLocal, 0
	if check.Peek {
		peekAll(ctx, check, groups, of)
		return
	}
	last := len(groups) - 1
	for i := range groups {
		g := &groups[i]
		if i < last {
			g.reserve(true)
		}
		g.check.Now = check.Now
		decide(ctx, g.store, &g.check)
		check.Mode, check.Now = max(check.Mode, g.check.Mode), g.check.Now
		if !g.check.Admitted {
			check.Admitted = false
			peek(ctx, check, groups[i+1:])
			startBlocks(ctx, groups[i+1:])
			break
		}
		check.Turn = max(check.Turn, g.check.Turn)
	}
	for i := range groups {
		g := &groups[i]
		if i < last {
			g.settle(ctx, check.Admitted)
		}
		g.copyTo(check)
	}
	decideShadows(ctx, check, of)
}

// decide has one store decide its zones, and records who decided and how long that took.
func decide(ctx context.Context, s Store, check *Check) {
	begun := time.Now()
	s.Decide(ctx, check)
	took := time.Since(begun) - time.Duration(check.Waited)*time.Microsecond
	for i := range check.Zones {
		check.Zones[i].Mode, check.Zones[i].Took = check.Mode, 0
	}
	check.Zones[0].Took = max(1, took)
}

// withTimeout limits the whole decision to the shortest timeout of the stores.
func withTimeout(ctx context.Context, groups []group) (context.Context, context.CancelFunc) {
	var least time.Duration
	for i := range groups {
		if t, ok := groups[i].store.(Timed); ok && (least == 0 || t.Timeout() < least) {
			least = t.Timeout()
		}
	}
	if least == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, least)
}

// group is the zones of a check that lie in one store.
type group struct {
	store Store
	check Check
	at    []int // their indexes in the whole check
	last  bool
}

// groupByStore divides the zones that are no shadows by their stores. A store
// with a zone whose counter is Last comes last.
func groupByStore(check *Check, of []Store) (groups []group) {
	for i := range check.Zones {
		if check.Zones[i].Shadow {
			continue
		}
		x := 0
		for x < len(groups) && groups[x].store != of[i] {
			x++
		}
		if x == len(groups) {
			groups = append(groups, group{store: of[i]})
		}
		groups[x].check.Zones = append(groups[x].check.Zones, check.Zones[i])
		groups[x].at = append(groups[x].at, i)
		groups[x].last = groups[x].last || check.Zones[i].Counter.Last
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		if a.last == b.last {
			return 0
		} else if a.last {
			return 1
		}
		return -1
	})
	return groups
}

func (g *group) reserve(on bool) {
	for i := range g.check.Zones {
		g.check.Zones[i].Reserve = on
	}
}

// settle charges the cost that was held, or releases it. A permit that the
// counter itself asks for remains.
func (g *group) settle(ctx context.Context, admitted bool) {
	for i := range g.check.Zones {
		z := &g.check.Zones[i]
		switch {
		case !z.Charged:
		case !admitted:
			g.store.Finish(ctx, z, 0)
			z.Charged = false
			g.uncount(ctx, z)
		case z.Counter.HoldCost:
		default:
			g.store.Finish(ctx, z, z.Cost)
			z.recount(g.check.Now)
		}
		z.Reserve = false
	}
}

// uncount sets the numbers of a zone whose cost was held when they were set, and is not any more.
func (g *group) uncount(ctx context.Context, z *ZoneCheck) {
	again := ZoneCheck{Counter: z.Counter, Key: z.Key, Tag: z.Tag, Group: z.Group, Cost: z.Cost, WantsMore: z.WantsMore}
	if z.Mode == ModeLocal && z.WantsMore {
		Peek(ctx, g.store, &again)
	}
	for r := range z.Results {
		switch res := &z.Results[r]; {
		case r < len(again.Results):
			res.Remaining, res.Reset, res.More = again.Results[r].Remaining, again.Results[r].Reset, again.Results[r].More
		case res.Rule != nil && z.WantsMore:
			res.Remaining += z.Cost
			res.SetMore(res.Rule, res.State, g.check.Now, z.Held)
		default:
			res.Remaining += z.Cost
		}
	}
}

// peek decides the zones of the stores after a store that denies and charges
// nothing, so that a denial has the results of all rules.
func peek(ctx context.Context, check *Check, groups []group) {
	for i := range groups {
		g := &groups[i]
		g.check.Peek = true
		decide(ctx, g.store, &g.check)
		g.check.Zones[0].Took = 0 // the decision is made
		check.Mode = max(check.Mode, g.check.Mode)
	}
}

// startBlocks starts the blocks of zones that a peek has denied: they do not depend on which
// store denies first. What is admitted by now is held and released.
func startBlocks(ctx context.Context, groups []group) {
	for i := range groups {
		g := &groups[i]
		if g.last || !slices.ContainsFunc(g.check.Zones, mayBlock) {
			continue
		}
		g.check.Peek = false
		g.reserve(true)
		decide(ctx, g.store, &g.check)
		g.check.Zones[0].Took = 0 // the decision is made
		g.settle(ctx, false)
		g.reserve(false)
	}
}

// mayBlock reports whether a zone that a peek has denied may block its key.
func mayBlock(z ZoneCheck) bool { return z.Counter.Blocks != nil && !z.Admits && z.Block.Until == 0 }

// peekAll decides all zones and charges nothing.
func peekAll(ctx context.Context, check *Check, groups []group, of []Store) {
	peek(ctx, check, groups)
	for i := range groups {
		g := &groups[i]
		check.Admitted = check.Admitted && g.check.Admitted
		check.Turn = max(check.Turn, g.check.Turn)
		g.copyTo(check)
	}
	decideShadows(ctx, check, of)
}

func (g *group) copyTo(check *Check) {
	for i, at := range g.at {
		check.Zones[at] = g.check.Zones[i]
	}
}

// decideShadows decides each shadow on its own, as one store would that had all zones: it is charged
// only if the others admit.
func decideShadows(ctx context.Context, check *Check, of []Store) {
	var to int
	for i := 0; i < len(check.Zones); i = to {
		for to = i + 1; to < len(check.Zones) && check.Zones[to].Joined; to++ {
		}
		if !check.Zones[i].Shadow {
			continue
		}
		one := Check{Zones: check.Zones[i:to], Peek: check.Peek || !check.Admitted}
		if decide(ctx, of[i], &one); one.Peek {
			one.Zones[0].Took = 0 // the decision is made
		}
	}
}

// recount updates the results that Redis reported while the cost was held, and
// that has been charged since.
func (z *ZoneCheck) recount(now int64) {
	for i := range z.Results {
		if res := &z.Results[i]; res.Rule != nil {
			res.Rule.Charge(res.State, now, z.Cost, 0)
			res.Count(res.Rule, res.State, now, z.Held)
		}
	}
}
