package limiter

import (
	"cmp"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/metrics"
)

// chargesLater reports whether finish must be called after the response, to charge it or
// to release permits.
func (q *request) chargesLater() bool {
	for i := range q.zones {
		z := &q.zones[i]
		if z.place != nil {
			return true
		}
		if z.rules == nil || !z.rules.Charged {
			continue
		}
		if z.zone.Config.Charge.AfterResponse() || z.zone.InFlight > 0 {
			return true
		}
	}
	return false
}

// needsStatus reports whether a zone depends on the status or the body of the response, or on whether the client leaves
// before its end.
func (q *request) needsStatus() bool {
	for i := range q.zones {
		z := q.zones[i].zone
		if charge := &z.Config.Charge; charge.AfterResponse() || z.Linger > 0 || z.places != nil {
			return true
		}
	}
	return false
}

// finish releases the permits of the request and makes the charges that depend on its response.
func (q *request) finish(told *ending) {
	if q.l.places {
		q.leavePlaces(told)
	}
	for i := range q.zones {
		z := &q.zones[i]
		if z.rules == nil || !z.rules.Charged {
			continue
		}
		charge := q.settle(i, told)
		if q.w == nil || !told.left() || !z.zone.linger(q.r.Context(), z.rules, charge) {
			z.zone.finish(q.r.Context(), z.rules, charge)
		}
		q.reportReached(z)
	}
}

// settle returns what the i-th zone charges after the response, and counts it.
func (q *request) settle(i int, told *ending) (charge int64) {
	z, response := &q.zones[i], told.of(i)
	charge, unknown := z.zone.Config.Charge.Settlement(q.r, z.rules.Cost, &response)
	if unknown {
		q.reportUnknown(z.zone, &response)
	}
	whole := z.zone.Config.Charge.Whole(z.rules.Cost, charge)
	q.countCost(i, whole, told.body)
	q.reportBeyond(z, whole)
	return charge
}

// countCost counts the final cost of the request in the i-th zone. body is nil if no next handler was
// reached.
func (q *request) countCost(i int, cost int64, body *measured) {
	z := q.zones[i].zone
	if z.repeated {
		if p := visitOf(q.r.Context()).met(z.Name); p != nil {
			if p.charged { // by a handler inside
				return
			}
			p.charged = true
		}
	}
	z.metrics.CountSettled(cost, q.shard)
	if z.Config.Charge.Settle != nil {
		q.countCostly(&q.zones[i], cost)
		if q.l.o.AccessLogs {
			q.logCost(&q.zones[i], cost)
		}
	}
	if z.groups == nil || cost == 0 {
		return
	}
	if body != nil && body.zones[i].by != nil {
		z.groups.Add(body.zones[i].group, cost)
	} else {
		z.groups.Add(z.Config.Charge.GroupBy.Of(q.r), cost)
	}
}

// reportUnknown reports a response that did not tell its cost: in a metric and, at most once a
// minute and zone, in the log.
func (q *request) reportUnknown(z *Zone, r *config.Response) {
	z.metrics.Count(metrics.UnknownCost, q.shard)
	if !z.common.unknownLog.Next(clock.Now()) {
		return
	}
	var reason string
	if r.Measured != nil {
		reason = r.Measured.Lacks()
	}
	switch {
	case r.End > config.Whole:
		reason = "it ended early"
	case reason == "":
		reason = "it has no number where settle looks"
	}
	q.l.o.Logger.Warn("the cost of a response is unknown", zap.String("zone", z.Name), zap.String("settle", cmp.Or(z.Config.Settle, "tokens")),
		zap.Int("status", r.Status), zap.String("reason", reason))
}

// beyond is how many capacities a request may cost without a line in the log.
const beyond = 10

// reportBeyond logs, at most once a minute and zone, a request that has cost more than ten times
// what a rule admits at once: a rule that refills is then in debt for as long.
func (q *request) reportBeyond(z *zoneResult, cost int64) {
	if cost <= z.rules.Cost {
		return
	}
	for i, r := range z.rules.Rules {
		if cost/beyond < r.Capacity() || !z.zone.common.beyondLog.Next(clock.Now()) {
			continue
		}
		fields := []zap.Field{
			zap.String("zone", z.zone.WrittenName()), zap.String("rule", z.set.Labels[i]),
			zap.Int64("cost", cost), zap.Int64("capacity", r.Capacity()), zap.String("client_ip", key.ClientIP(q.r)),
		}
		q.l.o.Logger.Warn("a request has cost more than ten times what a rule admits at once", q.withKey(z.zone, fields)...)
		return
	}
}
