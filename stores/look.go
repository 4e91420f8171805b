package stores

import "context"

// Look judges an item as [Store.Decide] would, and charges nothing. It returns
// who judged; the item's results are none if nobody did.
func Look(ctx context.Context, s Store, it *Item) Mode {
	a := Ask{Look: true, Items: []Item{*it}}
	a.Items[0].Shadow = false
	s.Decide(ctx, &a)
	shadow := it.Shadow
	*it = a.Items[0]
	it.Shadow = shadow
	return a.Mode
}
