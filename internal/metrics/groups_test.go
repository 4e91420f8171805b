package metrics

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// TestGroupsAreBounded adds the costs of ten thousand groups at the same time: 200 are kept, and nothing
// is missing in the sum.
func TestGroupsAreBounded(t *testing.T) {
	var g Groups
	var wg sync.WaitGroup
	const adders, groups = 8, 10_000
	for range adders {
		wg.Go(func() {
			for n := range groups {
				g.Add(fmt.Sprint(n), int64(n%5))
			}
		})
	}
	wg.Wait()
	list := g.Costs()
	sum := uint64(0)
	for _, c := range list {
		if sum += c.Cost; c.Cost == 0 {
			t.Errorf("group %s without a cost", c.Group)
		}
	}
	if len(list) != MaxGroups+1 || list[0].Group != otherGroup || sum != adders*groups*2 {
		t.Errorf("%d groups, the first %v, %d in all, want %d", len(list), list[0], sum, adders*groups*2)
	}
}

// TestSumGroups adds up random lists, and compares with sums by group.
func TestSumGroups(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		lists, want, all := make([][]GroupCost, random.IntN(4)), make(map[string]uint64), uint64(0)
		for i := range lists {
			for range random.IntN(10) {
				c := GroupCost{[]string{"a", "b", "c", "d", "e", "f", otherGroup}[random.IntN(7)], uint64(random.IntN(20))}
				lists[i] = append(lists[i], c)
				want[c.Group] += c.Cost
				all += c.Cost
			}
		}
		n := 2 + random.IntN(6)
		before := fmt.Sprint(lists)
		got := SumGroups(n, lists...)
		if fmt.Sprint(lists) != before {
			t.Fatalf("the lists were changed: %v, before %s", lists, before)
		}
		sum := uint64(0)
		for _, c := range got {
			if sum += c.Cost; c.Group != otherGroup && c.Cost != want[c.Group] {
				t.Errorf("%v of %v: want %d", c, lists, want[c.Group])
			}
		}
		byCost := func(a, b GroupCost) int { return int(b.Cost) - int(a.Cost) }
		if sum != all || len(got) > n || len(want) <= n && len(got) != len(want) || !slices.IsSortedFunc(got, byCost) {
			t.Errorf("at most %d of %v: %v", n, lists, got)
		}
		kept := make(map[string]bool)
		for _, c := range got {
			if kept[c.Group] {
				t.Errorf("%s twice in %v", c.Group, got)
			}
			kept[c.Group] = true
		}
		for group, cost := range want {
			if len(want) > n && !kept[group] && cost > got[len(got)-1].Cost && got[len(got)-1].Group != otherGroup {
				t.Errorf("%s with %d is not in %v", group, cost, got)
			}
		}
	}
}
