package metrics

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// MaxGroups is how many groups of a zone are kept.
	MaxGroups = 200

	otherGroup = "other" // of the groups beyond
)

// Groups are the final costs of a zone's requests by group. The zero value is ready for use.
type Groups struct {
	mu    sync.Mutex
	costs map[string]*cost
}

// cost is the cost of a group.
type cost struct {
	sum   uint64
	since time.Time // when the first was added
}

// Destruct implements caddy.Destructor.
func (*Groups) Destruct() error { return nil }

// Add adds the cost of a request to its group. A group without costs is not kept: any client could
// invent some.
func (g *Groups) Add(group string, n int64) {
	if n <= 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.costs[group]
	if c == nil && len(g.costs) >= MaxGroups {
		group = otherGroup
		c = g.costs[group]
	}
	if c == nil {
		if g.costs == nil {
			g.costs = make(map[string]*cost)
		}
		c = &cost{since: time.Now()}
		g.costs[strings.Clone(group)] = c // of a request, which is not retained
	}
	c.sum += uint64(n)
}

// GroupCost is the cost of a group, as the admin API answers it.
type GroupCost struct {
	Group string `json:"group"` // values of the parts of group_by, with " / " between them; other: of groups for which there was no room
	Cost  uint64 `json:"cost"`  // of all its requests
}

// Costs returns the costs by group, the greatest first.
func (g *Groups) Costs() []GroupCost {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	list := make([]GroupCost, 0, len(g.costs))
	for group, c := range g.costs {
		list = append(list, GroupCost{group, c.sum})
	}
	g.mu.Unlock()
	return SumGroups(MaxGroups+1, list)
}

// SumGroups adds up lists of costs by group and returns them, the greatest first. Of more than n
// groups, the least are one.
func SumGroups(n int, lists ...[]GroupCost) []GroupCost {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b GroupCost) int { return strings.Compare(a.Group, b.Group) })
	sums := all[:0]
	for _, c := range all {
		if last := len(sums) - 1; last >= 0 && sums[last].Group == c.Group {
			sums[last].Cost += c.Cost
			continue
		}
		sums = append(sums, c)
	}
	slices.SortStableFunc(sums, func(a, b GroupCost) int { return cmp.Compare(b.Cost, a.Cost) })
	if len(sums) <= n {
		return sums
	}
	rest := GroupCost{Group: otherGroup}
	for _, c := range sums[n-1:] {
		rest.Cost += c.Cost
	}
	return SumGroups(n, sums[:n-1], []GroupCost{rest})
}

// collect collects the costs. A counter that appears with a value has no increase before its second
// sample, unless Prometheus is told when it began.
func (g *Groups) collect(to samples, zone string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for group, c := range g.costs {
		to <- prometheus.MustNewConstMetricWithCreatedTimestamp(groupsDesc, prometheus.CounterValue, float64(c.sum), c.since, zone, group)
	}
}
