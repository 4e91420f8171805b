package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// promise holds the guarantees that depend on the fault.
type promise struct {
	wait   time.Duration // latency above an unlimited request's, for 99.9 % of the responses
	losses int           // how often Redis loses its data during the fault
	lost   []time.Time   // when it did while counts were shared
}

// checkAll checks the guarantees that hold through every fault.
func (s *scene) checkAll(r *record, out *result, p promise) {
	s.t.Helper()
	harness.OnlyStatuses(s.t, r.shots, http.StatusOK, http.StatusTooManyRequests)
	harness.OnlyStatuses(s.t, r.control, http.StatusOK)
	out.report("%d requests, no 5xx", len(r.shots))
	checkWaits(s.t, r, out, p.wait)
	checkBounds(s.t, r, out, p)
	s.checkLogs(r, out)
}

// checkWaits compares the latency of each request with the slowest simultaneous
// request that did not use Redis, so that the load of the machine does not count.
func checkWaits(t *testing.T, r *record, out *result, most time.Duration) {
	t.Helper()
	shots := during(r.shots, r.gone, r.over)
	p999, slowest := tail(shots, harness.Shot.Took)
	_, freeSlowest := tail(r.control, harness.Shot.Took)
	over, _ := tail(shots, func(s harness.Shot) time.Duration { return s.Took() - slowestBeside(s, r.control, freeSlowest) })
	out.report("99.9%% in %v, %v over an unlimited request beside it, slowest %v (unlimited %v)",
		ms(p999), ms(max(0, over)), ms(slowest), ms(freeSlowest))
	if over > most {
		out.late(t, "99.9%% of the responses within %v of an unlimited request, want %v", over, most)
	}
	if allowed := time.Second + freeSlowest; slowest > allowed {
		out.late(t, "slowest answer after %v, want at most %v", slowest, allowed)
	}
}

// slowestBeside returns the latency of the slowest control request that was in flight
// during a shot, or just before or after it. longest is the maximum of all control
// requests.
func slowestBeside(s harness.Shot, control []harness.Shot, longest time.Duration) (took time.Duration) {
	const beside = 30 * time.Millisecond
	for _, c := range during(control, s.Sent.Add(-beside-longest), s.Got.Add(beside)) {
		if c.Got.After(s.Sent.Add(-beside)) {
			took = max(took, c.Took())
		}
	}
	return took
}

// tail returns the 99.9th percentile and the maximum of a duration of the shots.
func tail(shots []harness.Shot, of func(harness.Shot) time.Duration) (p999, most time.Duration) {
	if len(shots) == 0 {
		return 0, 0
	}
	all := make([]time.Duration, len(shots))
	for i, s := range shots {
		all[i] = of(s)
	}
	slices.Sort(all)
	return all[len(all)*999/1000], all[len(all)-1]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d.Microseconds())/1000) }

// checkBounds checks how many requests of each key passed in every window. A window
// that overlaps an outage may contain twice the bound, plus the bound for each time
// that Redis lost its data. A window preceded by a whole window in one mode, shared
// or fallback, may contain only the bound.
func checkBounds(t *testing.T, r *record, out *result, p promise) {
	t.Helper()
	var aloneAt, sharedAt []time.Time
	byKey := make(map[string][]harness.Shot)
	for _, s := range r.shots {
		if decidedLocally(s) {
			aloneAt = append(aloneAt, s.Got)
		} else {
			sharedAt = append(sharedAt, s.Got)
		}
		if s.Status == http.StatusOK {
			byKey[pathOf(s)] = append(byKey[pathOf(s)], s)
		}
	}
	slices.SortFunc(aloneAt, time.Time.Compare)
	slices.SortFunc(sharedAt, time.Time.Compare)
	var touching, settled float64 // the maximum that passed, as a multiple of the bound
	for key, passed := range byKey {
		z := zoneOf(passed[0])
		if z.window >= time.Hour {
			touching = max(touching, check(t, key, "the whole outage", len(passed), (2+p.losses+len(p.lost))*z.bound, z.bound))
			continue
		}
		for i, first := range passed {
			from, to := first.Sent.Add(-z.window), first.Sent.Add(z.window)
			n := begunBy(passed[i:], z.window)
			if within(p.lost, from, to) {
				touching = max(touching, check(t, key, "a window in which Redis lost its memory", n, 3*z.bound, z.bound))
				continue
			}
			if within(aloneAt, from, to) && within(sharedAt, from, to) {
				touching = max(touching, check(t, key, "a window touching the outage", n, 2*z.bound, z.bound))
			} else {
				settled = max(settled, check(t, key, "a window apart from the outage", n, z.bound, z.bound))
			}
		}
	}
	out.report("most in a window %.2f of the bound, overlapping the outage %.2f", settled, touching)
}

// begunBy returns the number of shots certainly charged in the window that begins
// with the first of them.
func begunBy(shots []harness.Shot, window time.Duration) (n int) {
	end := shots[0].Sent.Add(window - time.Millisecond) // the limiter reads another clock
	for _, s := range shots {
		if !s.Sent.Before(end) {
			break
		}
		if s.Got.Before(end) {
			n++
		}
	}
	return n
}

func check(t *testing.T, key, where string, n, allowed, bound int) float64 {
	t.Helper()
	if n > allowed {
		t.Errorf("%s: %d passed in %s, want at most %d", key, n, where, allowed)
	}
	return float64(n) / float64(bound)
}

// within reports whether any of the sorted times is between from and to, or so
// shortly after that its event may have happened between them.
func within(sorted []time.Time, from, to time.Time) bool {
	i, _ := slices.BinarySearchFunc(sorted, from, time.Time.Compare)
	return i < len(sorted) && sorted[i].Before(to.Add(100*time.Millisecond))
}

// checkRecovery checks that counts are shared soon after Redis has recovered and that
// no zone denies everything then, and reports the delay.
func checkRecovery(t *testing.T, r *record, out *result, from time.Time, want time.Duration) {
	t.Helper()
	took, ok := sharedAgain(r.shots, later(from, r.ended))
	took += later(from, r.ended).Sub(from)
	if !ok {
		t.Fatalf("not shared again within %v", r.over.Sub(from))
	}
	out.report("shared again after %.2f s", took.Seconds())
	_, freeSlowest := tail(during(r.control, from, r.over), harness.Shot.Took)
	if took > want+freeSlowest {
		out.late(t, "shared again after %v, want %v", took, want)
	}
	const last = 2 * time.Second
	_, stood := tail(during(r.control, r.over.Add(-last), r.over), harness.Shot.Took)
	passed, sent := make(map[string]int), make(map[string]int)
	for _, s := range during(r.shots, r.over.Add(-last), r.over) {
		sent[zoneOf(s).name]++
		if s.Err == nil && s.Status == http.StatusOK {
			passed[zoneOf(s).name]++
		}
	}
	// Half of the requests that the limits admit of this load in the two seconds, less the time that
	// the machine stood still: of what it then has to answer at once, the limits admit no more.
	for name, least := range map[string]int{"hot": 90, "keys": 90} {
		least = int(float64(least) * max(0, 1-stood.Seconds()/last.Seconds()))
		if least = min(least, sent[name]/4); passed[name] < least {
			t.Errorf("zone %s: %d of %d passed in the last two seconds, want %d or more", name, passed[name], sent[name], least)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sharedAgain returns the time after from when nearly all decisions were Redis' for
// half a second.
func sharedAgain(shots []harness.Shot, from time.Time) (time.Duration, bool) {
	const steady = 500 * time.Millisecond
	rest := during(shots, from, from.Add(time.Hour))
	for i, s := range rest {
		if decidedLocally(s) {
			continue
		}
		next := during(rest[i:], s.Sent, s.Sent.Add(steady))
		if len(next) < rate/4 { // the load stood still, or the record ends
			continue
		}
		local := 0
		for _, n := range next {
			if decidedLocally(n) {
				local++
			}
		}
		if local*50 <= len(next) {
			return s.Got.Sub(from), true
		}
	}
	return 0, false
}

// storeLine is a log line about a store.
type storeLine struct {
	Level, Logger, Msg, Error, Advice string

	Node string // of a Cluster

	TS float64
}

func (l storeLine) down() bool { return strings.HasSuffix(l.Msg, "on_failure applies") }
func (l storeLine) up() bool   { return strings.HasPrefix(l.Msg, "Redis is back") }

// lines returns the lines about the store that the i-th instance logged since the
// begin of r.
func (s *scene) lines(r *record, i int) (all []storeLine) {
	return storeLines(s.caddys[i].Log()[r.marks[i]:])
}

func storeLines(log string) (all []storeLine) {
	for text := range strings.Lines(log) {
		var l storeLine
		if json.Unmarshal([]byte(text), &l) == nil && l.Logger == "rate_limit" {
			all = append(all, l)
		}
	}
	return all
}

// checkLogs checks that each change of mode of a node is one line with advice and that
// lines are not logged per request.
func (s *scene) checkLogs(r *record, out *result) {
	s.t.Helper()
	changes, others := 0, 0
	for i := range s.caddys {
		down := make(map[string]bool) // by node; the previous row, or a loaded machine, may have left one down
		for _, l := range storeLines(s.caddys[i].Log()[:r.marks[i]]) {
			down[l.Node] = l.down() || down[l.Node] && !l.up()
		}
		for _, l := range s.lines(r, i) {
			switch {
			case l.down():
				if down[l.Node] || l.Advice == "" || l.Error == "" {
					s.t.Errorf("instance %d: line %+v, want advice, and one line per change", i, l)
				}
				down[l.Node], changes = true, changes+1
			case l.up():
				if !down[l.Node] {
					s.t.Errorf("instance %d: line %+v without a line that Redis is down before it", i, l)
				}
				down[l.Node], changes = false, changes+1
			default:
				others++
			}
		}
	}
	out.report("%d changes of mode in the logs", changes)
	if most := 3*changes + 5*instances*(1+int(r.over.Sub(r.start)/(10*time.Second))); others > most { // they are limited by time
		s.t.Errorf("%d other lines of the store, want at most %d", others, most)
	}
}
