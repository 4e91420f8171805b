package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestRecallOnTraces has two instances check the same keys of zones with permits, costs that are held and
// blocks, often when a rule admits again. One of them denies without a call. The verdicts are those of the
// local store, which makes the same checks, and retries are never longer.
func TestRecallOnTraces(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	shared := newVirtualShared(t, srv, v)
	shared.recall()
	local := &memory.Store{Clock: v.clock}
	r := storekit.Seeded(t)
	uncalled, denied := 0, 0
	for round := range storekit.Operations(t) / 200 {
		zones := randomZones(t, r, fmt.Sprint("d", round), false, false)
		if round == 0 { // one of whose denials some certainly need no call
			c := [2]*stores.Counter{kit.TenPerHour(t, "d", false)}
			c[1] = c[0]
			zones = []zoneTrace{{algorithms: []string{"FixedWindow"}, counters: c, local: localCounters(c)}}
		}
		tr := &trace{t: t, v: v, r: r, zones: zones}
		v.now = 1_700_000_000_000_000 + r.Int64N(1_000_000)
		for step := range 200 {
			tr.advance()
			key, cost := uint64(1+r.IntN(2)), 1+r.Int64N(3)*r.Int64N(2)
			check, same := checkOf(zones, 0, key, cost)
			v.tick()
			if other := step%3 == 0; other {
				shared.askAlways() // as another instance
				shared.Decide(context.Background(), check)
				shared.recall()
			} else {
				shared.Decide(context.Background(), check)
			}
			local.Decide(context.Background(), same)
			if check.Admitted != same.Admitted || check.Mode != stores.ModeShared {
				t.Fatalf("round %d step %d: admitted %v in mode %v, the local store %v", round, step, check.Admitted, check.Mode, same.Admitted)
			}
			if !check.Admitted {
				denied++
				if !v.called() {
					uncalled++
				}
				if x, y := longestRetry(check), longestRetry(same); x > y && y != algorithms.Never || x == 0 && y > 0 {
					t.Fatalf("round %d step %d: denied for %d, want at most %d", round, step, x, y)
				}
			}
			for i := range check.Zones {
				for _, res := range same.Zones[i].Results {
					tr.edges = append(tr.edges, v.now+max(0, res.Retry), v.now+res.Reset)
				}
				if permit, _ := check.Zones[i].Holds(); permit && check.Zones[i].Charged {
					v.tick()
					shared.Finish(context.Background(), &check.Zones[i], 0)
					local.Finish(context.Background(), &same.Zones[i], 0)
				}
			}
			tr.edges = tr.edges[max(0, len(tr.edges)-20):]
		}
	}
	t.Logf("%d denials, %d of them without a call", denied, uncalled)
	if uncalled == 0 { // a tenth in most runs
		t.Errorf("each of %d denials called Redis", denied)
	}
}
