package stores

import (
	"context"
	"slices"
	"time"
)

// Across decides an ask whose items lie in several stores; of names the store
// of each item. The instant is not one, but the promise is the same: all
// stores but the last hold the cost until the last has decided, so that either
// every item is charged or none, and no bound is exceeded in between.
func Across(ctx context.Context, a *Ask, of []Store) {
	groups := groupByStore(a, of)
	ctx, cancel := deadlineOf(ctx, groups)
	defer cancel()
	a.Admitted, a.Mode = true, ModeLocal
	last := len(groups) - 1
	for i := range groups {
		g := &groups[i]
		if i < last {
			g.reserve(true)
		}
		g.ask.Now = a.Now
		g.store.Decide(ctx, &g.ask)
		a.Mode, a.Now = max(a.Mode, g.ask.Mode), g.ask.Now
		if !g.ask.Admitted {
			a.Admitted = false
			look(ctx, a, groups[i+1:])
			break
		}
		a.Turn = max(a.Turn, g.ask.Turn)
	}
	for i := range groups {
		g := &groups[i]
		if i < last {
			g.settle(ctx, a.Admitted)
		}
		g.copyTo(a)
	}
	shadows(ctx, a, of)
}

// deadlineOf is that of the most impatient store: the whole decision keeps it.
func deadlineOf(ctx context.Context, groups []group) (context.Context, context.CancelFunc) {
	var least time.Duration
	for i := range groups {
		if t, ok := groups[i].store.(interface{ Timeout() time.Duration }); ok && (least == 0 || t.Timeout() < least) {
			least = t.Timeout()
		}
	}
	if least == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, least)
}

// group is the items of an ask that lie in one store.
type group struct {
	store Store
	ask   Ask
	at    []int // their places in the whole ask
	last  bool
}

// groupByStore divides the items that are no shadows. The store of those that
// have to come last does.
func groupByStore(a *Ask, of []Store) (groups []group) {
	for i := range a.Items {
		if a.Items[i].Shadow {
			continue
		}
		x := 0
		for x < len(groups) && groups[x].store != of[i] {
			x++
		}
		if x == len(groups) {
			groups = append(groups, group{store: of[i]})
		}
		groups[x].ask.Items = append(groups[x].ask.Items, a.Items[i])
		groups[x].at = append(groups[x].at, i)
		groups[x].last = groups[x].last || a.Items[i].Counter.Last
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
	for i := range g.ask.Items {
		g.ask.Items[i].Reserve = on
	}
}

// settle charges what was held, or gives it back. A place that the counter
// itself wants held stays.
func (g *group) settle(ctx context.Context, admitted bool) {
	for i := range g.ask.Items {
		it := &g.ask.Items[i]
		switch {
		case !it.Charged:
		case !admitted:
			g.store.Finish(ctx, it, 0)
			it.Charged = false
			for r := range it.Results {
				it.Results[r].Remaining += it.Cost // which was held when this was counted
			}
		case it.Counter.HoldCost:
		default:
			g.store.Finish(ctx, it, it.Cost)
			it.recount(g.ask.Now)
		}
		it.Reserve = false
	}
}

// look asks the stores behind one that denies what they would have said, so that
// a denial tells of all of its rules. They charge nothing.
func look(ctx context.Context, a *Ask, groups []group) {
	for i := range groups {
		g := &groups[i]
		g.ask.Look = true
		g.store.Decide(ctx, &g.ask)
		a.Mode = max(a.Mode, g.ask.Mode)
	}
}

func (it *Item) skip() {
	it.Admits, it.Charged, it.Full = true, false, false
	it.Rules, it.Results = it.Counter.Rules, it.Results[:0]
}

func (g *group) copyTo(a *Ask) {
	for i, at := range g.at {
		a.Items[at] = g.ask.Items[i]
	}
}

// shadows judges and charges each shadow on its own, if the others admit.
func shadows(ctx context.Context, a *Ask, of []Store) {
	for i := range a.Items {
		switch {
		case !a.Items[i].Shadow:
		case a.Admitted:
			one := Ask{Items: a.Items[i : i+1]}
			of[i].Decide(ctx, &one)
		default:
			a.Items[i].skip()
		}
	}
}

// recount brings the numbers up to a cost that was held when Redis said them,
// and has been charged since.
func (it *Item) recount(now int64) {
	for i := range it.Results {
		if res := &it.Results[i]; res.rule != nil {
			res.rule.Charge(res.state, now, it.Cost, 0)
			res.Remaining, res.Reset = res.rule.Numbers(res.state, now)
			res.Remaining = max(0, res.Remaining-it.held)
		}
	}
}
