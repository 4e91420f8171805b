package diana

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// record is what is known of a request after the decision. Placeholders, the
// response's headers and the logs read it, also after the handler has returned.
type record struct {
	zones    []zoneRecord
	one      [1]zoneRecord // room for the usual case
	headers  headers
	exceeded exceeded
}

type zoneRecord struct {
	name                    string
	limit, remaining, reset int64
	outcome                 outcome
}

// exceeded is what denied a request.
type exceeded struct {
	zone  *zone
	label string
	retry int64 // microseconds, or algorithms.Never
}

// report settles what every zone decided and tells of it.
func (q *request) report() *record {
	rec := &record{}
	rec.zones = rec.one[:0]
	if !q.passes() {
		rec.exceeded = q.exceeded()
	}
	for i := range q.uses {
		u := &q.uses[i]
		u.outcome = q.outcomeOf(u)
		u.z.metrics.count(u.outcome)
		q.tellCrowded(u)
		rec.zones = append(rec.zones, q.recordOf(u))
	}
	rec.headers = q.headers()
	repl := replacer(q.r)
	if rec.exceeded.zone != nil {
		rec.exceeded.outdo(repl)
	}
	repl.Map(rec.placeholder)
	q.tell(rec)
	return rec
}

func (q *request) outcomeOf(u *use) outcome {
	switch {
	case u.outcome != allowed: // skipped, or denied outright
		return u.outcome
	case q.outright != nil: // nothing else was judged
		return refusedElsewhere
	case u.shadow && q.denies(u):
		return shadowDenied
	case q.denies(u):
		return denied
	case !q.passes():
		return refusedElsewhere
	case !u.shadow && (q.waited || q.ask.Turn > 0):
		return delayed
	}
	return allowed
}

// unjudged says that a store denies everything, because it is away.
func (q *request) unjudged() bool {
	return q.outright == nil && q.ask.Mode == stores.ModeDeny && !q.ask.Admitted
}

func (q *request) recordOf(u *use) zoneRecord {
	z := zoneRecord{name: u.z.Name, outcome: u.outcome}
	if u.item >= 0 && q.outright == nil {
		if res, limit := nearestOf(&q.ask.Items[u.item]); res != nil {
			z.limit, z.remaining, z.reset = limit, res.Remaining, seconds(res.Reset)
		}
	}
	return z
}

// exceeded finds the first rule that denies, as written, and the longest retry
// of all that do.
func (q *request) exceeded() (e exceeded) {
	if q.outright != nil {
		return exceeded{q.outright.z, q.outright.label, algorithms.Never}
	}
	for i := range q.uses {
		if u := &q.uses[i]; !u.shadow && q.denies(u) {
			e.zone, e.label = u.z, q.labelOf(u)
			break
		}
	}
	if q.unjudged() {
		return exceeded{e.zone, ruleStore, second}
	}
	retry, can := q.retryIn()
	if e.retry = retry.Microseconds(); !can {
		e.retry = algorithms.Never
	}
	return e
}

// labelOf names the first rule of a zone that denies.
func (q *request) labelOf(u *use) string {
	if u.item >= 0 {
		for r, res := range q.ask.Items[u.item].Results {
			if !res.Admit {
				return u.set.labels[r]
			}
		}
		if q.ask.Items[u.item].Full {
			return ruleInFlight
		}
	}
	if u.twin >= 0 && len(q.ask.Items[u.twin].Results) > 0 {
		return ruleDuplicates
	}
	return ruleStore
}

// placeholder implements caddy.ReplacerFunc.
func (rec *record) placeholder(key string) (any, bool) {
	rest, ok := strings.CutPrefix(key, "http.rate_limit.")
	if !ok {
		return nil, false
	}
	name, field, ok := strings.Cut(rest, ".")
	if !ok {
		return nil, false
	}
	if name == "exceeded" {
		return rec.exceeded.placeholder(field)
	}
	for i := range rec.zones {
		if z := &rec.zones[i]; z.name == name {
			return z.placeholder(field)
		}
	}
	return nil, false
}

// placeholder is empty, and not unknown, on a request that was not denied.
func (e *exceeded) placeholder(field string) (any, bool) {
	switch field {
	case "name", "rule", "retry_after":
	default:
		return nil, false
	}
	if e.zone == nil {
		return "", true
	}
	switch field {
	case "name":
		return e.zone.Name, true
	case "rule":
		return e.label, true
	}
	if e.retry == algorithms.Never {
		return "", true
	}
	return max(1, seconds(e.retry)), true
}

// outdo puts the placeholders of a denial before those of a directive that the
// request passed earlier, which would be asked first and say that nothing denied.
func (e *exceeded) outdo(repl *caddy.Replacer) {
	const prefix = "http.rate_limit.exceeded."
	if _, passed := repl.Get(prefix + "name"); !passed {
		return
	}
	for _, field := range []string{"name", "rule", "retry_after"} {
		v, _ := e.placeholder(field)
		repl.Set(prefix+field, v)
	}
}

func (z *zoneRecord) placeholder(field string) (any, bool) {
	switch field {
	case "limit":
		return z.limit, true
	case "remaining":
		return z.remaining, true
	case "reset":
		return z.reset, true
	case "decision":
		return z.outcome.String(), true
	}
	return nil, false
}

// tell writes the log lines and events of a decision, and adds to the access
// log what was not simply allowed.
func (q *request) tell(rec *record) {
	u := q.notable(rec)
	if u == nil {
		return
	}
	label := ""
	switch {
	case rec.exceeded.zone == u.z:
		label = rec.exceeded.label
	case u.label != "":
		label = u.label
	case u.outcome != delayed:
		label = q.labelOf(u)
	}
	if extra, ok := q.r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		extra.Set(zap.Object("rate_limit", logDecision{u.z.Name, label, u.outcome}))
	}
	if rec.exceeded.zone == u.z {
		q.exceeds(rec)
	}
}

// notable is the zone that the access log tells of: the one that denied, or the
// first that delayed, or the first shadow that would have denied.
func (q *request) notable(rec *record) (found *use) {
	for i := range q.uses {
		u := &q.uses[i]
		switch {
		case u.z == rec.exceeded.zone:
			return u
		case u.outcome == delayed && (found == nil || found.outcome == shadowDenied),
			u.outcome == shadowDenied && found == nil:
			found = u
		}
	}
	return found
}

// crowdedEvery is how often a zone says that it is full.
const crowdedEvery = time.Minute

// tellCrowded logs that a zone is full of keys, now and then.
func (q *request) tellCrowded(u *use) {
	crowded := u.item >= 0 && q.ask.Items[u.item].Crowded || u.twin >= 0 && q.ask.Items[u.twin].Crowded
	if !crowded {
		return
	}
	now, last := time.Now().UnixNano(), u.z.crowded.Load()
	if now-last > int64(crowdedEvery) && u.z.crowded.CompareAndSwap(last, now) {
		q.h.logger.Warn("the zone is full of keys that still count: new ones share counters, and may be denied too early",
			zap.String("zone", u.z.Name), zap.String("advice", "raise max_keys"))
	}
}

// logDecision is what the access log says of a request.
type logDecision struct {
	zone, rule string
	outcome    outcome
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (d logDecision) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("zone", d.zone)
	enc.AddString("rule", d.rule)
	enc.AddString("decision", d.outcome.String())
	return nil
}

const eventExceeded = "rate_limit_exceeded"

// exceeds logs a denial and emits its event.
func (q *request) exceeds(rec *record) {
	e := &rec.exceeded
	e.zone.metrics.countDenied(e.label)
	events := q.h.app.events != nil && q.h.app.events.ShouldEmit(eventExceeded)
	suppressed, log := e.zone.log.next(maxLines)
	if !log && !events {
		return
	}
	wait := time.Duration(max(0, e.retry)) * time.Microsecond
	fields := map[string]any{
		"zone": e.zone.Name, "rule": e.label, "wait": wait,
		"remote_ip": remoteIP(q.r.RemoteAddr), "client_ip": clientIP(q.r),
		"method": q.r.Method, "host": q.r.Host,
	}
	if q.h.LogKey {
		fields["key"] = e.zone.keyText(q.r)
	}
	if log {
		order := []string{"zone", "rule", "wait", "remote_ip", "client_ip", "method", "host", "key"}
		line := make([]zap.Field, 0, len(order)+1)
		for _, name := range order {
			if v, ok := fields[name]; ok {
				line = append(line, zap.Any(name, v))
			}
		}
		if suppressed > 0 {
			line = append(line, zap.Uint64("suppressed", suppressed))
		}
		q.h.logger.Info("rate limit exceeded", line...)
	}
	if events {
		q.h.app.emit(eventExceeded, fields)
	}
}

// keyText is a zone's key as it is written to a log on request.
func (z *zone) keyText(r *http.Request) string {
	parts := make([]string, len(z.key.parts))
	for i, t := range z.key.parts {
		parts[i] = string(t.append(nil, r))
	}
	return strings.Join(parts, " ")
}

func remoteIP(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// lineLimit lets through so many lines a second, and then counts.
type lineLimit struct {
	mu         sync.Mutex
	second     int64
	lines      int
	suppressed uint64
}

const maxLines = 100

// next says whether a line may be written, most of them a second, and how many
// were not since the last.
func (l *lineLimit) next(most int) (suppressed uint64, ok bool) {
	now := time.Now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now != l.second {
		l.second, l.lines = now, 0
	}
	if l.lines >= most {
		l.suppressed++
		return 0, false
	}
	l.lines++
	suppressed, l.suppressed = l.suppressed, 0
	return suppressed, true
}

// everySo lets through one line a minute.
type everySo struct{ last atomic.Int64 }

func (e *everySo) allow() bool {
	now, last := time.Now().UnixNano(), e.last.Load()
	return now-last > int64(time.Minute) && e.last.CompareAndSwap(last, now)
}
