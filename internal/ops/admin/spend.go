package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/cli"
)

// answerSpends returns the costs of every zone with group_by, of this instance or of all.
func (in instance) answerSpends(ctx context.Context, fleet bool) cli.Spends {
	answer := cli.Spends{Zones: []cli.Spend{}}
	var on map[string][]cli.MemberZone
	if fleet {
		f, counted := in.fleet(ctx)
		answer.Fleet, on = &f, byZone(counted)
	}
	for _, z := range in.Zones() {
		if len(z.GroupBy) > 0 {
			answer.Zones = append(answer.Zones, spendOf(z, on))
		}
	}
	slices.SortFunc(answer.Zones, func(a, b cli.Spend) int { return strings.Compare(a.Zone, b.Zone) })
	return answer
}

// answerSpend is answerSpends of one zone.
func (in instance) answerSpend(ctx context.Context, zone string, fleet bool) (any, error) {
	if in.Registry.Zone(zone) == nil {
		return nil, noZone(in, zone)
	}
	all := in.answerSpends(ctx, fleet)
	for _, s := range all.Zones {
		if s.Zone == zone {
			s.Fleet = all.Fleet
			return s, nil
		}
	}
	return nil, apiError(http.StatusNotFound, fmt.Errorf("zone %q: its costs are not added up: want group_by in it", zone))
}

// spendOf returns the costs of a zone on this instance, or with on, see byZone, on those that are counted.
func spendOf(z *limiter.Zone, on map[string][]cli.MemberZone) cli.Spend {
	s := cli.Spend{Zone: z.Name, Unit: z.Unit(), By: z.GroupBy, Groups: z.Spent()}
	if on != nil {
		var lists [][]metrics.GroupCost
		for _, of := range on[z.Name] {
			lists = append(lists, of.Groups)
		}
		s.Groups = metrics.SumGroups(metrics.MaxGroups+1, lists...)
	}
	s.Groups = append([]metrics.GroupCost{}, s.Groups...) // an empty list is none of null
	for _, g := range s.Groups {
		s.All += g.Cost
	}
	return s
}
