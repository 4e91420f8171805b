package diana

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// denial is what is told of a denied request. Like the placeholders it outlives
// the handler.
type denial struct {
	exceeded
	answer [2]string // the values of Retry-After and Cache-Control
}

// newDenial has room for headers where there are any.
func (q *request) newDenial() {
	if !q.tells() {
		q.denial = &denial{exceeded: q.exceeded()}
		return
	}
	d := new(struct {
		denial
		told headers
	})
	d.exceeded = q.exceeded()
	q.denial, q.told = &d.denial, &d.told
}

// report settles what every zone decided and tells of it.
func (q *request) report() {
	if !q.passes() {
		q.newDenial()
	}
	for i := range q.uses {
		u := &q.uses[i]
		u.outcome = q.outcomeOf(u)
		u.z.metrics.count(u.outcome, q.lane)
		q.tellCrowded(u)
		q.rank(u)
		if u.twin >= 0 && q.ask.Zones[u.twin].Charged {
			u.z.twins.add(u.key, q.ask.Zones[u.twin].Key)
		}
	}
	if !q.h.unread {
		q.show()
	}
	q.tell()
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
		for r, res := range q.ask.Zones[u.item].Results {
			if !res.Admit {
				return u.set.labels[r]
			}
		}
		if q.ask.Zones[u.item].Full {
			return ruleInFlight
		}
	}
	if u.twin >= 0 && len(q.ask.Zones[u.twin].Results) > 0 {
		return ruleDuplicates
	}
	return ruleStore
}

// tell writes the log lines and events of a decision, and adds to the access
// log what was not simply allowed.
func (q *request) tell() {
	u := q.notable()
	if u == nil {
		return
	}
	denies := q.denial != nil && q.denial.zone == u.z
	if extra := accessLog(q.r); extra != nil {
		extra.Set(zap.Object("rate_limit", q.line(u, denies)))
	}
	if denies {
		q.exceeds()
	}
}

// line is what the access log says of a zone.
func (q *request) line(u *use, denies bool) logDecision {
	d := logDecision{u.z.Name, u.label, u.outcome}
	switch {
	case denies:
		d.rule = q.denial.label
	case u.label == "" && u.outcome != delayed:
		d.rule = q.labelOf(u)
	}
	return d
}

// accessLog is where to add to the access log's line, nil if there is no such log.
func accessLog(r *http.Request) *caddyhttp.ExtraLogFields {
	if srv, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); srv == nil || srv.Logs == nil {
		return nil
	}
	extra, _ := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	return extra
}

// notable is the zone that the access log tells of: the one that denied, or the
// first that delayed, or the first shadow that would have denied.
func (q *request) notable() (found *use) {
	for i := range q.uses {
		u := &q.uses[i]
		switch {
		case q.denial != nil && u.z == q.denial.zone:
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
	crowded := u.item >= 0 && q.ask.Zones[u.item].Overflowed || u.twin >= 0 && q.ask.Zones[u.twin].Overflowed
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
func (q *request) exceeds() {
	e := &q.denial.exceeded
	e.zone.metrics.countDenied(e.label)
	events := q.h.app.events != nil && q.h.app.events.ShouldEmit(eventExceeded)
	suppressed, log := e.zone.log.next(q.now(), maxLines)
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

// now is the present instant in microseconds: that of the decision, if it was
// made by the clock of this process.
func (q *request) now() int64 {
	if q.outright == nil && q.ask.Mode == stores.ModeLocal && !q.h.across {
		return q.ask.Now
	}
	return clock()
}

// lineLimit lets through so many lines a second, and then counts.
type lineLimit struct {
	full       atomic.Int64 // the second in which no more lines may be written
	suppressed atomic.Uint64
	mu         sync.Mutex
	second     int64
	lines      int
}

const maxLines = 100

// next says whether a line may be written at now, most of them a second, and how
// many were not since the last. Once there were enough it takes no lock.
func (l *lineLimit) next(now int64, most int) (suppressed uint64, ok bool) {
	at := now / second
	if l.full.Load() == at {
		l.suppressed.Add(1)
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at != l.second {
		l.second, l.lines = at, 0
	}
	if l.lines >= most {
		l.full.Store(at)
		l.suppressed.Add(1)
		return 0, false
	}
	l.lines++
	return l.suppressed.Swap(0), true
}

// everySo lets through one line a minute.
type everySo struct{ last atomic.Int64 }

func (e *everySo) allow() bool {
	now, last := time.Now().UnixNano(), e.last.Load()
	return now-last > int64(time.Minute) && e.last.CompareAndSwap(last, now)
}
