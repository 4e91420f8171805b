package limiter

import (
	"net"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// report counts, logs and emits the decision, and sets the placeholders. e is the denial;
// nil: the request was admitted.
func (q *request) report(e *exceeded) {
	o := q.outcome()
	usual := o == metrics.Allowed && len(q.shadows) == 0 // all zones that counted the request allowed it
	if !usual {
		q.setOutcomes()
	}
	for i, zones := 0, q.zones; i < len(zones); i++ {
		z := &zones[i]
		first := true
		if z.zone.repeated && z.outcome != metrics.Skipped {
			first = q.countRepeated(z)
		} else {
			z.zone.metrics.Count(z.outcome, q.shard)
		}
		switch {
		case z.outcome == metrics.ShadowDenied:
			q.reportShadow(i)
		case first && z.outcome == metrics.Allowed && z.isNear():
			z.zone.metrics.Count(metrics.Near, q.shard)
		}
		if c := z.rules; c != nil {
			q.reportReached(z)
			if c.Overflowed || c.Unblocked {
				z.zone.reportOverflow(c, q.now())
			}
		}
		if z.duplicate != nil {
			q.reportDuplicates(z)
		}
		if q.l.counted != inProcess && z.isAsked() { // once, however often it has asked
			z.zone.metrics.CountFallback(q.modeOf(z), q.shard)
		}
		if first || z.outcome == metrics.Denied {
			q.countKey(z, e)
		}
	}
	q.countRequest(o)
	if q.l.o.Placeholders {
		q.setPlaceholders(e)
	}
	if q.l.o.Spans {
		q.addToSpan(e)
	}
	if !usual && q.l.o.AccessLogs {
		q.addToAccessLog(e, q.placeWait)
	}
	if e != nil {
		q.reportDenial(e)
		q.reportBlocks()
	}
}

// countKey adds the request to a zone's ranking of the busiest and most denied keys.
func (q *request) countKey(z *zoneResult, e *exceeded) {
	if z.zone.ranking == nil || z.key == (stores.Key{}) {
		return
	}
	now := q.check.Now
	if now == 0 { // no store decided
		now = clock.Now()
	}
	var why metrics.Cause
	if z.outcome == metrics.Denied || z.outcome == metrics.ShadowDenied {
		_, why = q.shownCause(z, e)
	}
	if z.zone.ranking.Count(z.key, why, now, q.dice.throw()) && q.l.o.LogKey {
		z.zone.ranking.Name(z.key, func() []string { return z.zone.Describe(q.r) })
	}
}

// countCostly adds the cost of the request to a zone's ranking of the most costly keys.
func (q *request) countCostly(z *zoneResult, cost int64) {
	if z.zone.ranking == nil || cost <= 0 || z.key == (stores.Key{}) {
		return
	}
	if z.zone.ranking.CountCost(z.key, cost, clock.Now(), q.dice.throw()) && q.l.o.LogKey {
		z.zone.ranking.Name(z.key, func() []string { return z.zone.Describe(q.r) })
	}
}

// reportOverflow counts and logs that a zone is full of keys: that keys share counters, or are not blocked. It logs each
// at most once a minute.
func (z *Zone) reportOverflow(c *stores.ZoneCheck, now int64) {
	if n := z.metrics.Counters; n != nil {
		if c.Overflowed && c.Charged {
			n.Overflows.Add(1)
		}
		if c.Unblocked {
			n.Unblocked.Add(1)
		}
	}
	if c.Overflowed && z.common.overflowLog.Next(now) {
		z.options.Logger.Warn("the zone is full: new keys share counters and may be denied too early",
			zap.String("zone", z.Name), zap.String("advice", "raise max_keys"))
	}
	if c.Unblocked && z.common.unblockLog.Next(now) {
		z.options.Logger.Warn("the zone is full: keys that exceed their limit are denied, but not blocked",
			zap.String("zone", z.Name), zap.String("advice", "raise max_keys"))
	}
}

// addToAccessLog adds the decision to the access log unless every zone allowed the
// request, or an earlier handler's decision is more notable. wait is how much longer it has waited for places.
func (q *request) addToAccessLog(e *exceeded, wait time.Duration) {
	z := q.notable(e)
	if z == nil {
		return
	}
	line := q.logged()
	if line == nil {
		return
	}
	line.wait += wait
	if line.outcome.Notability() > z.outcome.Notability() {
		return
	}
	line.zone, line.outcome = z.zone.WrittenName(), z.outcome
	line.rule, line.cause = q.shownCause(z, e)
}

// logCost adds the final cost in a zone to the access log.
func (q *request) logCost(z *zoneResult, cost int64) {
	line := q.logged()
	if line == nil {
		return
	}
	if line.zone == "" { // all zones allowed the request
		line.zone, line.outcome = z.zone.WrittenName(), z.outcome
	}
	line.costs = append(line.costs, zoneCost{z.zone.WrittenName(), cost})
}

// notable returns the zone for the access log: the one that denied the request, otherwise the first with the most notable
// outcome; nil: there is none.
func (q *request) notable(e *exceeded) (found *zoneResult) {
	for i := range q.zones {
		z := &q.zones[i]
		if e != nil && z.zone == e.zone {
			return z
		}
		if n := z.outcome.Notability(); n > 0 && (found == nil || n > found.outcome.Notability()) {
			found = z
		}
	}
	return found
}

// accessLog returns the extra fields of the access log; nil if the server has none.
func accessLog(r *http.Request) *caddyhttp.ExtraLogFields {
	if srv, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); srv == nil || srv.Logs == nil {
		return nil
	}
	extra, _ := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	return extra
}

// logged returns the field rate_limit of the request's access log, which it adds if there is none yet;
// nil: the server has no access log.
func (q *request) logged() *logDecision {
	extra := accessLog(q.r)
	if extra == nil {
		return nil
	}
	v := q.visit()
	if v.logged == nil {
		v.logged = new(logDecision)
		extra.Set(zap.Object("rate_limit", v.logged))
	}
	return v.logged
}

// logDecision is the field rate_limit of the access log.
type logDecision struct {
	zone, rule string
	outcome    metrics.Outcome
	cause      metrics.Cause // of the zone's denial; none: it did not deny
	costs      []zoneCost    // of the zones with settle or tokens
	wait       time.Duration // for places of in_flight adaptive
}

type zoneCost struct {
	zone string
	cost int64
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (d *logDecision) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("zone", d.zone)
	enc.AddString("rule", d.rule)
	enc.AddString("decision", d.outcome.String())
	if d.cause != metrics.CauseNone {
		enc.AddString("cause", d.cause.String())
	}
	if d.wait > 0 {
		enc.AddFloat64("wait", d.wait.Seconds())
	}
	others := false
	for _, c := range d.costs {
		if c.zone == d.zone {
			enc.AddInt64("cost", c.cost)
		} else {
			others = true
		}
	}
	if !others {
		return nil
	}
	return enc.AddObject("costs", zapcore.ObjectMarshalerFunc(func(enc zapcore.ObjectEncoder) error {
		for _, c := range d.costs {
			enc.AddInt64(c.zone, c.cost)
		}
		return nil
	}))
}

const (
	eventExceeded = "rate_limit_exceeded"
	eventBlocked  = "rate_limit_blocked"
)

// reportDenial counts and logs a denial, and emits its event.
func (q *request) reportDenial(e *exceeded) {
	if e.zone == nil || e.cause == metrics.CauseLeft {
		return
	}
	e.zone.countedRule(e.label).CountDenied(e.cause)
	q.warnOfProxy(e.zone)
	q.announce(e, &e.zone.common.logLimit, "rate limit exceeded", eventExceeded)
}

// announce logs a line about the request and emits its event, unless there were too many lines.
func (q *request) announce(e *exceeded, limit *loglimit.Limit, text, event string) {
	suppressed, ok := limit.Next(q.now(), maxLines)
	if !ok {
		return
	}
	q.tell(e.zone, q.fields(e), suppressed, text, event)
}

// reportBlocks counts and logs the blocks that the decision started, and emits their events.
func (q *request) reportBlocks() {
	for i := range q.zones {
		z := &q.zones[i]
		if z.rules == nil || !z.rules.Block.Started {
			continue
		}
		b := &z.rules.Block
		label := z.set.Labels[b.Rule]
		z.zone.countedRule(label).CountBlock()
		e := exceeded{zone: z.zone, label: label, cause: metrics.CauseRule, retry: b.Span}
		q.announce(&e, &z.zone.common.blockLog, "key blocked", eventBlocked)
	}
}

// fields returns the fields of the log line and of the event of a denial.
func (q *request) fields(e *exceeded) []zap.Field {
	return []zap.Field{
		zap.String("zone", e.zone.WrittenName()), zap.String("rule", e.label), zap.String("cause", e.cause.String()),
		zap.Duration("wait", time.Duration(max(0, e.retry))*time.Microsecond),
		zap.String("remote_ip", remoteIP(q.r.RemoteAddr)), zap.String("client_ip", key.ClientIP(q.r)),
		zap.String("method", q.r.Method), zap.String("host", q.r.Host),
	}
}

func remoteIP(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
