package limiter

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/adaptive"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/metrics"
)

// places are the places of a zone with in_flight adaptive. They survive reloads, with the limit that was found.
type places struct {
	*adaptive.Places
	waits    *prometheus.HistogramVec
	brakeLog loglimit.Minute
}

// allPlaces holds the places of each zone in use.
var allPlaces pool.Pool[*places] = "places" // by countersID

// Destruct implements caddy.Destructor.
func (*places) Destruct() error { return nil }

// defaultWaiting is how many requests of a zone wait for a place, without max_waiting.
const defaultWaiting = 1000

// fillEvery is how often a waiting request checks for free places: a phase with a higher limit may have begun while no
// other request came or went. It checks for new rules, too.
const fillEvery = 250 * time.Millisecond

// acquirePlaces gives a zone its places.
func (z *Zone) acquirePlaces() {
	if z.InFlightAdaptive == nil {
		return
	}
	least, most := z.InFlightAdaptive.Bounds()
	z.placing = adaptive.Options{Min: int(least), Max: int(most)}
	if z.MaxWait > 0 {
		if z.placing.Waiting = defaultWaiting; z.MaxWaiting > 0 {
			z.placing.Waiting = int(z.MaxWaiting)
		}
	}
	z.places = allPlaces.Acquire(&z.refs, countersID{z.env.Process, z.Name, ""}, func() *places { return &places{Places: adaptive.New(), waits: metrics.NewWaits()} })
}

// placing is what became of a request that needs places.
type placing uint8

const (
	placed   placing = iota
	unplaced         // a zone, or a rule, denies the request, or its client has left
	outdated         // rules have changed while it waited
)

// takePlaces takes a place in each zone that has them, before the stores are asked: in all, or in none.
func (q *request) takePlaces(ctx context.Context) (p placing) {
	for i, zones := 0, q.enforcing(); i < len(zones) && p == placed; i++ {
		if z := &zones[i]; z.zone.places != nil && z.set != nil {
			p = q.takePlace(ctx, z)
		}
	}
	if p != placed {
		q.releasePlaces()
	}
	return p
}

func (q *request) takePlace(ctx context.Context, z *zoneResult) placing {
	band, ok := z.zone.Config.Priority.Band(q.r)
	if !ok {
		q.countBad(z.zone, metrics.BadPriority)
	}
	if z.spare == nil {
		z.spare = adaptive.NewTicket()
	}
	t, now := z.spare, clock.Now()
	t.Key, t.Band = z.key, band
	v, told := z.zone.places.Enter(now, clock.Wall(now)-now, z.zone.placing, t)
	adaptive.Tell(told)
	waited, ruled := v == adaptive.Waits, false
	if waited {
		v, ruled = q.waitForPlace(ctx, z, t)
		q.begin() // in the places of the zones before
	}
	if v == adaptive.Placed {
		z.place = t
	}
	switch {
	case q.verdict == left:
		q.refuse(z, t.Retry())
	case ruled:
	case waited && q.outdated():
		return outdated
	case v == adaptive.Placed:
		return placed
	case !q.ruleDenies(ctx):
		q.refuse(z, t.Retry())
	}
	return unplaced
}

// refuse denies a request for want of a place, or notes that its client has left while it waited for one.
func (q *request) refuse(z *zoneResult, retry int64) {
	z.label, z.cause, z.outcome = labelInFlight, metrics.CauseOverload, metrics.Denied
	if q.verdict == left {
		z.cause, z.outcome = metrics.CauseLeft, metrics.Left
	} else {
		q.verdict = overloaded
	}
	q.refuses, q.overload = z, max(second, retry)
}

// waitForPlace waits for a place, unless a rule would deny the request then: ruled.
func (q *request) waitForPlace(ctx context.Context, z *zoneResult, t *adaptive.Ticket) (v adaptive.Verdict, ruled bool) {
	begun := clock.Elapsed()
	v = adaptive.Waits
	defer func() {
		if v == adaptive.Waits { // a store has panicked
			q.stopWaiting(z, t)
		}
	}()
	if q.ruleDenies(ctx) {
		return q.stopWaiting(z, t), true
	}
	q.since = cmp.Or(q.since, begun)
	until := q.since + time.Duration(z.zone.MaxWait)
	wait := time.NewTimer(0)
	defer wait.Stop()
	defer func() {
		took := clock.Elapsed() - begun
		q.placeWait += took
		z.zone.places.waits.WithLabelValues(z.zone.Name, z.zone.priority(t.Band)).Observe(took.Seconds())
	}()
	for {
		rest := until - clock.Elapsed()
		wait.Reset(min(max(0, rest), fillEvery))
		select {
		case <-t.Told():
			return t.Verdict(), false
		case <-ctx.Done():
			q.verdict = left
			return q.stopWaiting(z, t), false
		case <-wait.C:
			if rest <= 0 || q.outdated() {
				return q.stopWaiting(z, t), false
			}
			adaptive.Tell(z.zone.places.Fill(clock.Now()))
		}
	}
}

// ruleDenies reports whether a rule would deny the request now: then the request does not wait, and is told of the rule.
// If a window ends between the peek and startBlocks, startBlocks may admit and charge the request, which then passes
// without a place.
func (q *request) ruleDenies(ctx context.Context) bool {
	if len(q.check.Zones) == 0 {
		return false
	}
	if q.peek(ctx); q.check.Admitted {
		return false
	}
	q.startBlocks(ctx)
	return true
}

// stopWaiting takes a request out of the queue. A place that it was given meanwhile is given back.
func (q *request) stopWaiting(z *zoneResult, t *adaptive.Ticket) adaptive.Verdict {
	if was := z.zone.places.Leave(t); was != adaptive.Waits {
		<-t.Told()
		if was == adaptive.Placed {
			adaptive.Tell(z.zone.places.Release(clock.Now(), t))
		}
	}
	return adaptive.Refused
}

// releasePlaces gives back the places of a request.
func (q *request) releasePlaces() {
	for i := range q.zones {
		if z := &q.zones[i]; z.place != nil {
			adaptive.Tell(z.zone.places.Release(clock.Now(), z.place))
			z.place = nil
		}
	}
}

// begin starts the time of a request in its places, after a leaky_bucket, another zone's places or a handler inside have
// delayed it.
func (q *request) begin() {
	for i := range q.zones {
		if z := &q.zones[i]; z.place != nil {
			z.zone.places.Begin(clock.Now(), z.place)
		}
	}
}

// beginAround does what begin does in the handlers around this one, which has delayed the request.
func beginAround(w http.ResponseWriter) {
	for o := outerWriter(w); o != nil; o = outerWriter(o.ResponseWriter) {
		if o.placed != nil {
			o.placed.begin()
		}
	}
}

// answered tells the places of the request that the upstream answered: with the first byte of a response, or an error.
func (q *request) answered(now int64, o adaptive.Outcome) {
	for i := range q.zones {
		if z := &q.zones[i]; z.place != nil {
			if c := z.zone.places.Answered(now, z.place, o); c != nil {
				q.reportBrake(z.zone, c)
			}
		}
	}
}

// outcomeOfStatus returns what a status says of the upstream.
func outcomeOfStatus(status int) adaptive.Outcome {
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || status == 0 {
		return adaptive.Failed
	}
	return adaptive.Good
}

// leavePlaces gives back the places of a request after its response.
func (q *request) leavePlaces(told *ending) {
	switch {
	case told.denied, told.End == config.Never:
	case told.End == config.Gone:
		q.answered(clock.Now(), adaptive.Left)
	default:
		q.answered(clock.Now(), outcomeOfStatus(told.Status))
	}
	for i := range q.zones {
		if z := &q.zones[i]; z.place != nil && told.left() && z.zone.lingerInPlace(z.place) {
			z.place, z.spare = nil, nil
		}
	}
	q.releasePlaces()
}

// lingerInPlace keeps the place of a client that has left for the zone's linger. It returns false if the caller is to
// give the place back at once.
func (z *Zone) lingerInPlace(t *adaptive.Ticket) bool {
	common := z.common
	if z.Linger == 0 {
		return false
	}
	if common.lingering.Add(1) > maxLingering {
		common.lingering.Add(-1)
		return false
	}
	time.AfterFunc(time.Duration(z.Linger), func() {
		adaptive.Tell(z.places.Release(clock.Now(), t))
		common.lingering.Add(-1)
	})
	return true
}
