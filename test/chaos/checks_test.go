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

// promise is what of it depends on the fault.
type promise struct {
	wait   time.Duration // 99.9 % of the answers come so soon after an unlimited one
	losses int           // how often Redis loses its memory in the course of it
	lost   []time.Time   // when it did so while counts were shared
}

// judged are the promises that hold through every fault.
func (s *scene) judged(r *record, out *result, p promise) {
	s.t.Helper()
	harness.OnlyStatuses(s.t, r.shots, http.StatusOK, http.StatusTooManyRequests)
	harness.OnlyStatuses(s.t, r.control, http.StatusOK)
	out.say("%d requests, 0 5xx", len(r.shots))
	judgeWaits(s.t, r, out, p.wait)
	judgeBounds(s.t, r, out, p)
	s.judgeLogs(r, out)
}

// judgeWaits compares each answer with the slowest of the requests that were
// under way at the same moments and had nothing to do with Redis, so that what a
// busy machine adds is not held against the limiter.
func judgeWaits(t *testing.T, r *record, out *result, most time.Duration) {
	t.Helper()
	shots := during(r.shots, r.gone, r.over)
	p999, slowest := tail(shots, harness.Shot.Took)
	_, freeSlowest := tail(r.control, harness.Shot.Took)
	over, _ := tail(shots, func(s harness.Shot) time.Duration { return s.Took() - slowestBeside(s, r.control, freeSlowest) })
	out.say("99.9%% in %v, %v over an unlimited request beside it, slowest %v (unlimited %v)",
		ms(p999), ms(max(0, over)), ms(slowest), ms(freeSlowest))
	if over > most {
		out.late(t, "99.9%% of the answers within %v of an unlimited request, want %v", over, most)
	}
	if allowed := time.Second + freeSlowest; slowest > allowed {
		out.late(t, "slowest answer after %v, want at most %v", slowest, allowed)
	}
}

// slowestBeside is how long the slowest of the control requests took that were
// under way while a shot was, or just before or after it. None took longer than
// longest.
func slowestBeside(s harness.Shot, control []harness.Shot, longest time.Duration) (took time.Duration) {
	const beside = 30 * time.Millisecond
	for _, c := range during(control, s.Sent.Add(-beside-longest), s.Got.Add(beside)) {
		if c.Got.After(s.Sent.Add(-beside)) {
			took = max(took, c.Took())
		}
	}
	return took
}

// tail is the value that 99.9 % of the shots do not exceed, and the greatest.
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

// judgeBounds counts what passed of each key in every window. One that touches
// an outage may hold twice the bound, and the bound once more for each time
// that Redis has lost its memory; one in which all shared, or all were alone,
// for a window before it, only the bound.
func judgeBounds(t *testing.T, r *record, out *result, p promise) {
	t.Helper()
	var aloneAt, sharedAt []time.Time
	byKey := make(map[string][]harness.Shot)
	for _, s := range r.shots {
		if alone(s) {
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
	var touching, settled float64 // the most that passed, in bounds
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
	out.say("most in a window %.2f of the bound, touching the outage %.2f", settled, touching)
}

// begunBy is how many of the shots were certainly charged in the window that
// begins with the first of them.
func begunBy(shots []harness.Shot, window time.Duration) (n int) {
	end := shots[0].Sent.Add(window - time.Millisecond) // the limiter's clock is another
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

// within says whether any of the sorted times lies between the two, or so
// little later that what it stands for may have happened between them.
func within(sorted []time.Time, from, to time.Time) bool {
	i, _ := slices.BinarySearchFunc(sorted, from, time.Time.Compare)
	return i < len(sorted) && sorted[i].Before(to.Add(100*time.Millisecond))
}

// judgeBack sees that counts are shared again soon after Redis was there again,
// that nobody is locked out then, and says how soon it was.
func judgeBack(t *testing.T, r *record, out *result, from time.Time, want time.Duration) {
	t.Helper()
	took, ok := sharedAgain(r.shots, later(from, r.ended))
	took += later(from, r.ended).Sub(from)
	if !ok {
		t.Fatalf("not shared again within %v", r.over.Sub(from))
	}
	out.say("shared again after %.2f s", took.Seconds())
	_, freeSlowest := tail(during(r.control, from, r.over), harness.Shot.Took)
	if took > want+freeSlowest {
		out.late(t, "shared again after %v, want %v", took, want)
	}
	end := during(r.shots, r.over.Add(-2*time.Second), r.over)
	passed := make(map[string]int)
	for _, s := range harness.With(http.StatusOK, end) {
		passed[zoneOf(s).name]++
	}
	// Half of what the limits let pass in two seconds of what is asked for.
	for name, least := range map[string]int{"hot": 90, "keys": 90} {
		if passed[name] < least {
			t.Errorf("zone %s: %d passed in the last two seconds, want %d or more", name, passed[name], least)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sharedAgain is how long after that time nearly all answers were given by
// Redis, for half a second.
func sharedAgain(shots []harness.Shot, from time.Time) (time.Duration, bool) {
	const steady = 500 * time.Millisecond
	rest := during(shots, from, from.Add(time.Hour))
	for i, s := range rest {
		if alone(s) {
			continue
		}
		next := during(rest[i:], s.Sent, s.Sent.Add(steady))
		if len(next) < rate/4 {
			break
		}
		lone := 0
		for _, n := range next {
			if alone(n) {
				lone++
			}
		}
		if lone*50 <= len(next) {
			return s.Got.Sub(from), true
		}
	}
	return 0, false
}

// storeLine is a line that Diana logs of a store.
type storeLine struct {
	Level, Logger, Msg, Error, Advice string

	TS float64
}

func (l storeLine) down() bool { return strings.HasSuffix(l.Msg, "going on without it") }
func (l storeLine) up() bool   { return strings.HasPrefix(l.Msg, "Redis is back") }

// lines are what the i-th instance has logged of its store since.
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

// judgeLogs sees that each change of mode is one line, which says what to do,
// and that there is no line for every request.
func (s *scene) judgeLogs(r *record, out *result) {
	s.t.Helper()
	changes, others := 0, 0
	for i := range s.caddys {
		up := true // unless the row before, or a busy machine, left it away
		for _, l := range storeLines(s.caddys[i].Log()[:r.marks[i]]) {
			up = l.up() || up && !l.down()
		}
		for _, l := range s.lines(r, i) {
			switch {
			case l.down():
				if !up || l.Advice == "" || l.Error == "" {
					s.t.Errorf("instance %d: line %+v, want advice, and one line a change", i, l)
				}
				up, changes = false, changes+1
			case l.up():
				if up {
					s.t.Errorf("instance %d: line %+v without one that Redis is away", i, l)
				}
				up, changes = true, changes+1
			default:
				others++
			}
		}
	}
	out.say("%d changes of mode in the logs", changes)
	if most := 3*changes + 5*instances; others > most {
		s.t.Errorf("%d other lines of the store, want at most %d", others, most)
	}
}
