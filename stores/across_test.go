package stores

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
)

// listening is a store that writes down when it is asked.
type listening struct {
	Local
	name  string
	asked *[]string
	waits time.Duration
}

func (l *listening) Decide(ctx context.Context, a *Ask) {
	*l.asked = append(*l.asked, l.name)
	l.Local.Decide(ctx, a)
}

func (l *listening) Timeout() time.Duration { return l.waits }

func pair() (both []Store, asked *[]string) {
	asked = new([]string)
	clock := func() int64 { return hour }
	return []Store{
		&listening{Local{clock}, "one", asked, time.Second},
		&listening{Local{clock}, "two", asked, time.Minute},
	}, asked
}

// TestAcrossAsksTheQueueLast decides a zone that paces and one that does not.
// The queue is asked last, and only looked at if the other denies.
func TestAcrossAsksTheQueueLast(t *testing.T) {
	both, asked := pair()
	queue, plain := tenAnHour(t, "queue", false), tenAnHour(t, "plain", false)
	queue.Last = true
	for _, c := range []struct {
		counters []*Counter
		cost     int64
		want     string
	}{
		{[]*Counter{queue, plain}, 1, "two one"},
		{[]*Counter{plain, queue}, 1, "one two"},
		{[]*Counter{queue, plain}, 11, "two one"},
	} {
		*asked = nil
		Across(context.Background(), items(c.cost, c.counters...), both)
		if got := strings.Join(*asked, " "); got != c.want {
			t.Errorf("%s first, cost %d: asked %s, want %s", c.counters[0].Zone, c.cost, got, c.want)
		}
	}
}

// TestAcrossShadow counts a shadow in another store if the live zone admits,
// and leaves it alone if that denies.
func TestAcrossShadow(t *testing.T) {
	both, _ := pair()
	live, shadow := tenAnHour(t, "live", false), tenAnHour(t, "shadow", false)
	for _, c := range []struct{ cost, left int64 }{{4, 6}, {11, -1}, {6, 0}} {
		a := items(c.cost, live, shadow)
		a.Items[1].Shadow = true
		Across(context.Background(), a, both)
		if res := a.Items[1].Results; len(res) > 0 && res[0].Remaining != c.left || len(res) == 0 && c.left >= 0 {
			t.Errorf("cost %d: the shadow says %+v, want %d left", c.cost, res, c.left)
		}
	}
}

// TestAcrossKeepsWhatIsHeld decides a zone that holds its cost until the answer
// beside one in another store: it goes on to hold it, and nothing is charged.
func TestAcrossKeepsWhatIsHeld(t *testing.T) {
	both, _ := pair()
	holds, plain := tenAnHour(t, "holds", true), tenAnHour(t, "plain", false)
	a := items(4, holds, plain)
	Across(context.Background(), a, both)
	b := items(1, holds)
	if both[0].Decide(context.Background(), b); b.Items[0].Results[0].Remaining != 5 {
		t.Errorf("%d are left while 4 and 1 are held of 10", b.Items[0].Results[0].Remaining)
	}
	both[0].Finish(context.Background(), &b.Items[0], 0)
	both[0].Finish(context.Background(), &a.Items[0], 0)
	c := items(10, holds)
	if both[0].Decide(context.Background(), c); !c.Admitted {
		t.Error("what was held was charged, though the answer was not to be paid for")
	}
}

// TestAcrossDeadline gives the whole decision the time of the most impatient
// store, whichever comes first.
func TestAcrossDeadline(t *testing.T) {
	both, _ := pair()
	for _, order := range [][]group{{{store: both[0]}, {store: both[1]}}, {{store: both[1]}, {store: both[0]}}} {
		ctx, cancel := deadlineOf(context.Background(), order)
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > time.Second {
			t.Errorf("the deadline is %v, want a second at most", time.Until(end))
		}
		cancel()
	}
}

// TestAcrossStoresAllOrNothing decides zones in two stores together.
func TestAcrossStoresAllOrNothing(t *testing.T) {
	one, two := &Local{Clock: func() int64 { return hour }}, &Local{Clock: func() int64 { return hour }}
	r := seeded(t)
	a := newTestCounter(t, "a", 0, false, nil, ruleSpec{&algorithms.GCRA{}, algorithms.Spec{Limit: 20, Window: hour, Cost: 1}})
	b := newTestCounter(t, "b", 0, false, nil, ruleSpec{&algorithms.SlidingLog{}, algorithms.Spec{Limit: 10, Window: hour, Cost: 1}})
	for _, c := range []*Counter{a, b} {
		c.Table = NewTable(c.Rules, true, 100)
	}
	var used [2]int64
	for range 200 {
		both := r.IntN(2) == 0
		ask := &Ask{Items: []Item{{Counter: a, Key: Key{1, 1}, Cost: 1}}}
		of := []Store{one}
		if both {
			ask.Items = append(ask.Items, Item{Counter: b, Key: Key{1, 1}, Cost: 1})
			of = append(of, two)
		}
		Across(context.Background(), ask, of)
		want := used[0] < 20 && (!both || used[1] < 10)
		if ask.Admitted != want {
			t.Fatalf("admitted %v with %v used, both %v", ask.Admitted, used, both)
		}
		if ask.Admitted {
			used[0]++
			if both {
				used[1]++
			}
		}
		for i := range ask.Items {
			if len(ask.Items[i].Results) == 0 {
				continue // another store had already denied
			}
			limit := ask.Items[i].Rules[0].Limit()
			if got := ask.Items[i].Results[0].Remaining; got != limit-used[i] {
				t.Fatalf("item %d: remaining %d, want %d", i, got, limit-used[i])
			}
		}
	}
}
