package limiter

import (
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dianalimiter/diana/internal/clock"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/loglimit"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/stores"
)

// report counts, logs and emits the decision, and sets the placeholders. e is the denial;
// nil: the request was admitted.
func (q *request) report(e *exceeded) {
	usual := e == nil && !q.waited && q.check.Turn == 0 // what counted the request has allowed it
	for i := range q.zones {
		z := &q.zones[i]
		if usual = usual && !z.shadow; !usual {
			z.outcome = q.outcomeOf(z)
		}
		z.zone.metrics.Count(z.outcome, q.shard)
		switch {
		case z.outcome == metrics.ShadowDenied:
			q.reportShadow(z)
		case z.outcome == metrics.Allowed && z.isNear():
			z.zone.metrics.CountNear(q.shard)
		}
		if c := z.rules; c != nil && c.Counter.Notifies {
			q.reportReached(z)
		}
		if c := z.rules; c != nil && (c.Overflowed || c.Unblocked) {
			q.logOverflow(z.zone, c)
		}
		if c := z.duplicate; c != nil {
			q.logOverflow(z.zone, c)
		}
		q.countKey(z)
	}
	q.countRequest()
	q.setPlaceholders(key.Replacer(q.r), e)
	if !usual && q.l.o.AccessLogs {
		q.addToAccessLog(e)
	}
	if e != nil {
		q.reportDenial(e)
		q.reportBlocks()
	}
}

// countKey counts the request for the busiest and most denied keys of a zone.
func (q *request) countKey(z *zoneResult) {
	if z.zone.topKeys == nil || z.outcome == metrics.Skipped || z.key == (stores.Key{}) {
		return
	}
	now := q.check.Now
	if now == 0 { // no store decided
		now = clock.Now()
	}
	denied := z.outcome == metrics.Denied || z.outcome == metrics.ShadowDenied
	if z.zone.topKeys.Count(z.key, denied, now, q.dice.Throw()) && q.l.o.LogKey {
		z.zone.topKeys.Name(z.key, func() string { return z.zone.keyText(q.r) })
	}
}

// keyText returns the key of a request as text, for logs.
func (z *Zone) keyText(r *http.Request) string {
	return strings.Join(z.Config.Plan.Describe(r), " ")
}

// logOverflow logs, at most once per minute and zone, that a zone is full of keys, and that
// it therefore does not block one.
func (q *request) logOverflow(z *Zone, c *stores.ZoneCheck) {
	if c.Overflowed && z.common.overflowLog.Next(q.now()) {
		q.l.o.Logger.Warn("the zone is full: new keys share counters and may be denied too early",
			zap.String("zone", z.Name), zap.String("advice", "raise max_keys"))
	}
	if c.Unblocked && z.common.unblockLog.Next(q.now()) {
		q.l.o.Logger.Warn("the zone is full: keys that exceed their limit are denied, but not blocked",
			zap.String("zone", z.Name), zap.String("advice", "raise max_keys"))
	}
}

// addToAccessLog adds the decision to the access log unless every zone allowed the
// request.
func (q *request) addToAccessLog(e *exceeded) {
	z := q.notable(e)
	if z == nil {
		return
	}
	extra := accessLog(q.r)
	if extra == nil {
		return
	}
	line := logDecision{z.zone.WrittenName(), z.label, z.outcome}
	switch {
	case e != nil && e.zone == z.zone:
		line.rule = e.label
	case z.label == "" && z.outcome == metrics.ShadowDenied:
		line.rule = q.labelOf(z)
	}
	extra.Set(zap.Object("rate_limit", line))
}

// notable returns the zone for the access log: the one that denied, otherwise the first
// that delayed, otherwise the first in shadow that would have denied, or delayed.
func (d *decision) notable(e *exceeded) (found *zoneResult) {
	for i := range d.zones {
		z := &d.zones[i]
		switch {
		case e != nil && z.zone == e.zone:
			return z
		case z.outcome == metrics.Allowed:
		case z.outcome == metrics.Delayed && (found == nil || found.outcome != metrics.Delayed),
			z.outcome == metrics.ShadowDenied && (found == nil || found.outcome == metrics.ShadowDelayed),
			z.outcome == metrics.ShadowDelayed && found == nil:
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

// logDecision is the field rate_limit of the access log.
type logDecision struct {
	zone, rule string
	outcome    metrics.Outcome
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (d logDecision) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("zone", d.zone)
	enc.AddString("rule", d.rule)
	enc.AddString("decision", d.outcome.String())
	return nil
}

const (
	eventExceeded       = "rate_limit_exceeded"
	eventShadowExceeded = "rate_limit_shadow_exceeded"
	eventBlocked        = "rate_limit_blocked"
	maxLines            = 100 // and events, per second, zone and kind
)

// reportDenial counts and logs a denial, and emits its event.
func (q *request) reportDenial(e *exceeded) {
	if e.zone == nil {
		return
	}
	e.zone.countedRule(e.label).CountDenied(false)
	q.announce(e, &e.zone.common.logLimit, "rate limit exceeded", eventExceeded)
}

// announce logs what a zone did to the request and emits its event, unless there were too many
// of them.
func (q *request) announce(e *exceeded, limit *loglimit.Limit, text, event string) {
	suppressed, ok := limit.Next(q.now(), maxLines)
	if !ok {
		return
	}
	q.tell(e.zone, q.fields(e), suppressed, text, event)
}

// reportShadow logs what a zone in shadow would have denied, and emits its event.
func (q *request) reportShadow(z *zoneResult) {
	e := q.exceededIn(z)
	z.zone.countedRule(e.label).CountDenied(true)
	q.announce(&e, &z.zone.common.shadowLog, "rate limit would be exceeded", eventShadowExceeded)
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
		e := exceeded{zone: z.zone, label: label, retry: b.Span}
		q.announce(&e, &z.zone.common.blockLog, "key blocked", eventBlocked)
	}
}

// fields returns the fields of the log line and of the event of a denial.
func (q *request) fields(e *exceeded) []zap.Field {
	return []zap.Field{
		zap.String("zone", e.zone.WrittenName()), zap.String("rule", e.label),
		zap.Duration("wait", time.Duration(max(0, e.retry))*time.Microsecond),
		zap.String("remote_ip", remoteIP(q.r.RemoteAddr)), zap.String("client_ip", key.ClientIP(q.r)),
		zap.String("method", q.r.Method), zap.String("host", q.r.Host),
	}
}

// tell logs something that happened to the request in a zone, and emits its event.
func (q *request) tell(z *Zone, fields []zap.Field, suppressed uint64, text, event string) {
	fields = q.addCommon(z, fields, suppressed)
	q.l.o.Logger.Info(text, fields...)
	if q.l.env.Listens(event) {
		q.l.env.Emit(event, eventData(fields))
	}
}

// addCommon adds the fields that all lines about a request have. suppressed is how many there
// would have been since the last one.
func (q *request) addCommon(z *Zone, fields []zap.Field, suppressed uint64) []zap.Field {
	if q.l.o.LogKey {
		fields = append(fields, zap.String("key", z.keyText(q.r)))
	}
	if suppressed > 0 {
		fields = append(fields, zap.Uint64("suppressed", suppressed))
	}
	return fields
}

// maxEventValue is the greatest size of a value of an event, in bytes. Events wait for
// their handlers in a queue, and clients choose the size of hosts and keys.
const maxEventValue = 4096

// eventData returns the fields of a log line as the data of an event.
func eventData(fields []zap.Field) map[string]any {
	data := make(map[string]any, len(fields))
	for _, f := range fields {
		switch {
		case f.Type == zapcore.DurationType:
			data[f.Key] = time.Duration(f.Integer)
		case f.Type == zapcore.Int64Type:
			data[f.Key] = f.Integer
		case f.Type == zapcore.Uint64Type:
			data[f.Key] = uint64(f.Integer)
		case len(f.String) > maxEventValue:
			data[f.Key] = strings.Clone(strings.ToValidUTF8(f.String[:maxEventValue], ""))
		default:
			data[f.Key] = f.String
		}
	}
	return data
}

func remoteIP(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
