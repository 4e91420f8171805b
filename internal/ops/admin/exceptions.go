package admin

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

// answerExceptions returns the exceptions that have not ended, of all zones or of the one in the
// parameter zone.
func (in instance) answerExceptions(q url.Values) (any, error) {
	name := q.Get("zone")
	if name != "" && in.Registry.Zone(name) == nil {
		return nil, noZone(in, name)
	}
	answer, now := cli.Exceptions{Exceptions: []cli.Exception{}}, time.Now()
	for _, z := range in.Zones() {
		if name != "" && z.Name != name {
			continue
		}
		s := z.Status()
		for _, x := range s.Exceptions {
			if x.Until.IsZero() || now.Before(x.Until) {
				answer.Exceptions = append(answer.Exceptions, cli.Exception{Zone: z.Name, Does: cli.DoesOf(x), Exception: x})
			}
		}
	}
	slices.SortStableFunc(answer.Exceptions, func(a, b cli.Exception) int {
		return cmp.Or(cmp.Compare(a.Zone, b.Zone), endOf(a).Compare(endOf(b)), slices.Compare(a.Key, b.Key))
	})
	return answer, nil
}

// endOf returns when an exception ends; one without an end ends after all others.
func endOf(x cli.Exception) time.Time {
	if x.Until.IsZero() {
		return time.Unix(1<<40, 0)
	}
	return x.Until
}
