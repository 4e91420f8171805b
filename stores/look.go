package stores

import (
	"context"
	"sync"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/scripts"
)

// Look judges an item as [Store.Decide] would, and charges nothing. It returns
// who judged; the item's results are none if nobody did.
func Look(ctx context.Context, s Store, it *Item) Mode {
	a := Ask{Items: []Item{*it, blocked.item(it)}}
	a.Items[0].Shadow = false
	s.Decide(ctx, &a)
	shadow := it.Shadow
	*it = a.Items[0]
	it.Shadow = shadow
	return a.Mode
}

// blocked is a rule that admits nothing: an ask with it among the others is
// judged in full and not charged.
var blocked blocker

type blocker struct {
	once    sync.Once
	counter Counter
}

const blockerCost = 2

func (r *blocker) item(of *Item) Item {
	r.once.Do(func() {
		alg := new(algorithms.FixedWindow)
		rule, err := alg.Compile(algorithms.Spec{Limit: 1, Window: 1e6, Cost: 1})
		if err != nil {
			panic(err) // it is a constant
		}
		r.counter = Counter{
			Zone: "look", Kinds: "never", Rules: []algorithms.Rule{rule}, Codes: []byte{scripts.Decide().Code(alg)},
			Split: func(int64) []algorithms.Rule { return []algorithms.Rule{rule} },
		}
		r.counter.Table = NewTable(r.counter.Rules, true, 1)
	})
	// Its own key, so that it is nobody's zone key, in the slot of the other's.
	return Item{Counter: &r.counter, Key: Key{Hi: ^of.Key.Hi, Lo: of.Key.Lo}, Tag: of.Tag, Cost: blockerCost}
}
