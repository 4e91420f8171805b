package stores

import (
	"context"
	"slices"
	"time"
)

// Across decides a check whose zones lie in several stores. of holds the store
// of each zone. The stores do not decide at one instant, but the guarantee is the
// same: all stores but the last hold the cost until the last has decided, so
// that either every zone is charged or none, and no bound is exceeded meanwhile:
//
//	event                     not asked                       holds
//	it is asked, and admits   holds; the last one is charged  -
//	it is asked, and denies   denies                          -
//	another denies            is peeked at; where that may    released
//	                          block, held and released
//	all admit                 -                               charged
//
// Shadows are decided afterwards, each on its own.
func Across(ctx context.Context, check *Check, of []Store) {
	groups := groupByStore(check, of)
	ctx, cancel := withTimeout(ctx, groups)
	defer cancel()
	check.Admitted, check.Mode, check.Turn = true, ModeLocal, 0
	if check.Peek {
		for i := range groups {
			groups[i].peek(ctx)
			groups[i].join(check)
		}
	} else {
		askAll(ctx, check, groups)
	}
	for i := range groups {
		groups[i].copyTo(check)
	}
	decideShadows(ctx, check, of)
}

// askAll asks the stores one after the other until one denies, and ends what they hold.
func askAll(ctx context.Context, check *Check, groups []group) {
	last, asked := len(groups)-1, 0
	for ; check.Admitted && asked <= last; asked++ {
		g := &groups[asked]
		g.check.Now = check.Now
		g.ask(ctx, asked < last)
		check.Now = g.check.Now
		g.join(check)
	}
	for i := range groups[:max(0, asked-1)] {
		if g := &groups[i]; check.Admitted {
			g.charge(ctx)
		} else {
			g.release(ctx)
		}
	}
	for i := asked; i <= last; i++ {
		groups[i].look(ctx)
		check.Mode = max(check.Mode, groups[i].check.Mode)
	}
}

// decide asks one store to decide its zones, and records who decided and how long that took.
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

// groupByStore divides the zones that enforce their rules by their stores. A store
// with a zone whose counter is Last comes last.
func groupByStore(check *Check, of []Store) (groups []group) {
	for i := range check.Zones[:len(check.Zones)-check.Shadows] {
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

// ask asks the store to decide its zones. With hold, the store holds the cost until charge or release.
func (g *group) ask(ctx context.Context, hold bool) {
	for i := range g.check.Zones {
		g.check.Zones[i].Reserve = hold
	}
	decide(ctx, g.store, &g.check)
	for i := range g.check.Zones {
		if z := &g.check.Zones[i]; !z.Charged {
			z.Reserve = false
		}
	}
}

// join adds what the store has decided to the whole check.
func (g *group) join(check *Check) {
	check.Admitted = check.Admitted && g.check.Admitted
	check.Mode, check.Turn = max(check.Mode, g.check.Mode), max(check.Turn, g.check.Turn)
}

// charge charges the cost that is held. What the counter itself holds remains.
func (g *group) charge(ctx context.Context) {
	for i := range g.check.Zones {
		z := &g.check.Zones[i]
		if z.Charged && !z.Counter.HoldCost {
			z.KeepsPermit = true
			g.store.Finish(ctx, z, z.Cost)
			z.KeepsPermit = false
			z.recount(g.check.Now)
		}
		z.Reserve = false
	}
}

// release releases the cost that is held, and with it the permit.
func (g *group) release(ctx context.Context) {
	for i := range g.check.Zones {
		z := &g.check.Zones[i]
		if z.Charged {
			g.store.Finish(ctx, z, 0)
			z.Charged = false
			g.uncount(ctx, z)
		}
		z.Reserve = false
	}
}

// uncount sets the numbers of a zone whose cost was held when they were set, and is not any more.
func (g *group) uncount(ctx context.Context, z *ZoneCheck) {
	again := ZoneCheck{Counter: z.Counter, Subject: z.Subject, Cost: z.Cost, WantsMore: z.WantsMore}
	if z.Mode == ModeLocal {
		Peek(ctx, g.store, &again)
	}
	for r := range z.Results {
		switch res := &z.Results[r]; {
		case r < len(again.Results):
			res.Remaining, res.Reset, res.More = again.Results[r].Remaining, again.Results[r].Reset, again.Results[r].More
		case res.Rule != nil:
			res.Count(res.Rule, res.State, g.check.Now, z.Held)
		default:
			res.Remaining += z.Cost
		}
	}
}

// peek decides the zones and charges nothing.
func (g *group) peek(ctx context.Context) {
	g.check.Peek = true
	decide(ctx, g.store, &g.check)
	g.check.Zones[0].Took = 0 // the decision is made
}

// look decides the zones after another store has denied, so that a denial has the results of all rules. A
// block starts whichever store denies first: if one may, what is admitted by now is held and released.
func (g *group) look(ctx context.Context) {
	g.peek(ctx)
	if g.last || !slices.ContainsFunc(g.check.Zones, mayBlock) {
		return
	}
	g.check.Peek = false
	g.ask(ctx, true)
	g.check.Zones[0].Took = 0
	g.release(ctx)
}

// mayBlock reports whether a zone that a peek has denied may block its key.
func mayBlock(z ZoneCheck) bool { return z.Counter.Blocks != nil && !z.Admits && z.Block.Until == 0 }

func (g *group) copyTo(check *Check) {
	for i, at := range g.at {
		check.Zones[at] = g.check.Zones[i]
	}
}

// decideShadows decides each shadow on its own, or two that are joined, as one store would that had all zones: they are
// charged only if the others admit.
func decideShadows(ctx context.Context, check *Check, of []Store) {
	for from := len(check.Zones) - check.Shadows; from < len(check.Zones); {
		to := from + 1
		if check.Joined(to) {
			to++
		}
		one := Check{Zones: check.Zones[from:to], Shadows: to - from, Peek: check.Peek || !check.Admitted}
		if decide(ctx, of[from], &one); one.Peek {
			one.Zones[0].Took = 0 // the decision is made
		}
		from = to
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
