package simulation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestOne runs the plan in the environment, or a short one.
func TestOne(t *testing.T) {
	p := &Plan{Seed: 1}
	text := os.Getenv(planVariable)
	if text != "" {
		if err := json.Unmarshal([]byte(text), p); err != nil {
			t.Fatal(err)
		}
	}
	r := Run(t, p)
	if text == "" {
		for _, v := range r.Violations {
			t.Errorf("%s: %s", v.Promise, v.What)
		}
		return
	}
	if err := os.WriteFile(os.Getenv(resultVariable), encode(r), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The plans of every test run.
const firstSeed, seeds = 1, 20

// TestSimulation runs some plans that are always the same, or, for as long as DIANA_SIMULATE
// says, those of the seeds from DIANA_SEED on or from a new one. It shrinks the first failure
// and prints its timeline.
func TestSimulation(t *testing.T) {
	seed := uint64(firstSeed)
	more := func(s uint64) bool { return s < firstSeed+seeds }
	if long := duration(t, "DIANA_SIMULATE", 0); long > 0 {
		until := time.Now().Add(long)
		seed, more = uint64(time.Now().UnixNano()), func(uint64) bool { return time.Now().Before(until) }
		if s := os.Getenv("DIANA_SEED"); s != "" {
			n, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			seed = n
		}
	}
	all := os.Getenv("DIANA_SIMULATE_ALL") != "" // do not stop at the first failure
	t.Logf("DIANA_SEED=%d", seed)
	sum, err := Search(os.Args[0], seed, runtime.NumCPU(), more, func(r *Result) bool {
		if all && len(r.Violations) > 0 {
			fmt.Printf("seed %d: %s: %s\n", r.Plan.Seed, r.Violations[0].Promise, r.Violations[0].What)
			r.Print(t.Output())
		}
		return !all && len(r.Violations) > 0
	})
	if err != nil {
		t.Fatal(err)
	}
	sum.Print(t.Output())
	if len(sum.Failures) == 0 {
		for _, promise := range []string{"bound", "charges", "modes", "places", "uncharged"} {
			if sum.Checked[promise] == 0 {
				t.Errorf("nothing was checked of %q: want something in each run", promise)
			}
		}
		return
	}
	first := sum.Failures[0]
	if all {
		t.Fail()
		return
	}
	t.Errorf("seed %d: %s: %s", first.Plan.Seed, first.Violations[0].Promise, first.Violations[0].What)
	Shrink(os.Args[0], first, time.Now().Add(duration(t, "DIANA_SHRINK", 2*time.Minute))).Print(t.Output())
}

// TestPrint prints the run of the plan in the environment as a timeline.
func TestPrint(t *testing.T) {
	p := &Plan{Seed: 1, Quiet: true}
	if text := os.Getenv(planVariable); text != "" {
		p = new(Plan)
		if err := json.Unmarshal([]byte(text), p); err != nil {
			t.Fatal(err)
		}
	}
	r, err := p.Start(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	r.Print(t.Output())
	if r.Requests == 0 || r.Events == 0 {
		t.Errorf("%d requests and %d other events: want some of each", r.Requests, r.Events)
	}
	for _, v := range r.Violations {
		t.Errorf("%s: %s", v.Promise, v.What)
	}
}

// duration returns the duration in an environment variable.
func duration(t *testing.T, name string, otherwise time.Duration) time.Duration {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestRepeats checks that the plan of a seed is always the same, and that of another one is not.
func TestRepeats(t *testing.T) {
	drawn := func(seed uint64) *Plan {
		p := &Plan{Seed: seed}
		p.draw()
		return p
	}
	for seed := range uint64(50) {
		p := drawn(seed)
		if again := drawn(seed); !reflect.DeepEqual(p, again) {
			t.Fatalf("seed %d: plan\n%+v\nand then\n%+v", seed, p, again)
		}
		if other := drawn(seed + 1); reflect.DeepEqual(p.steps, other.steps) {
			t.Errorf("seeds %d and %d have the same steps", seed, seed+1)
		}
	}
}

// TestOutageAfterAnother asks whether a request that was admitted alone, in an outage without any
// answer, reaches Redis: if another was before, its debt may have been sent into this one.
func TestOutageAfterAnother(t *testing.T) {
	mute := &span{what: "half-open-down", from: 10 * time.Second, to: 16 * time.Second, away: true, whole: true, site: -1}
	refuses := func(from time.Duration) *span {
		return &span{what: "relapse", from: from, to: from + time.Second, away: true, answers: true, site: -1}
	}
	for _, c := range []struct {
		spans []*span
		want  bool
	}{
		{[]*span{mute}, true},
		{[]*span{refuses(8 * time.Second), mute}, false},
		{[]*span{refuses(time.Second), mute}, true},
		{[]*span{mute, refuses(12 * time.Second)}, true},
	} {
		o := newOracle(&world{plan: &Plan{setup: &setup{way: way{timeout: 25 * time.Millisecond}}}})
		o.spans = c.spans
		q := &request{start: 11 * time.Second, decided: 11 * time.Second, answered: 12 * time.Second, end: 12 * time.Second}
		if got := o.reaches(&site{Kind: ledger}, q); got != c.want {
			t.Errorf("%s first, at %v: reaches Redis %v, want %v", c.spans[0].what, c.spans[0].from, got, c.want)
		}
	}
}

// TestLateBeforeAnOutage asks whether what a request owes since its call was late is charged, if Redis stops
// answering afterwards: the debt may be under way then.
func TestLateBeforeAnOutage(t *testing.T) {
	const start, timeout = 10 * time.Second, 25 * time.Millisecond
	for _, c := range []struct {
		took, after time.Duration
		want        bool
	}{{timeout, time.Second, false}, {timeout, time.Minute, true}, {timeout / 2, time.Second, true}} {
		o := newOracle(&world{plan: &Plan{setup: &setup{way: way{timeout: timeout}}}})
		o.spans = []*span{{what: "pause", from: start + c.after, to: start + c.after + time.Second, away: true, whole: true, site: -1}}
		end := start + c.took
		if got := o.reaches(&site{Kind: ledger}, &request{start: start, decided: end, answered: end, end: end}); got != c.want {
			t.Errorf("decided after %v, and Redis stops %v later: reaches Redis %v, want %v", c.took, c.after, got, c.want)
		}
	}
}

// TestLeaseOutlivesLoss asks what windows that begin after a loss may admit: during a lease, an
// instance may spend what it leased before, and what the others were not told of.
func TestLeaseOutlivesLoss(t *testing.T) {
	const lost = 10 * time.Second
	for _, c := range []struct {
		store string
		after time.Duration
		want  int64
	}{{"leased", 100 * time.Millisecond, 200}, {"leased", 300 * time.Millisecond, 100}, {"", 100 * time.Millisecond, 100}} {
		s := new(setup)
		s.add(site{Kind: leased, Store: c.store, Rules: []rule{{Algorithm: "sliding_log", Limit: 100, Window: 3 * time.Second}}})
		o := newOracle(&world{plan: &Plan{setup: s}})
		o.spans = []*span{{what: "flush", from: lost, to: lost, loses: true, instance: -1, site: -1}}
		got, why := o.allowed(0, 0, []*request{{key: "k"}}, nil, lost+c.after, lost+c.after+3*time.Second)
		if got != c.want {
			t.Errorf("store %q, %v after a loss: %d allowed (%s), want %d", c.store, c.after, got, why, c.want)
		}
	}
}

// TestDeadlocked looks at what goroutines do that keep time from passing: only if each waits for a lock, one of
// them for one of go-redis, can they not go on.
func TestDeadlocked(t *testing.T) {
	const (
		closes = "goroutine 7 [sync.Mutex.Lock, synctest bubble 1]:\ngithub.com/redis/go-redis/v9.(*PubSub).Close(0x1)"
		other  = "goroutine 8 [sync.Mutex.Lock, synctest bubble 1]:\ngithub.com/caddyserver/caddy/v2.Log()"
		runs   = "goroutine 9 [runnable, synctest bubble 1]:\nmain.f()"
		waits  = "goroutine 10 [select (durable), synctest bubble 1]:\ngithub.com/redis/go-redis/v9.(*PubSub).conn(0x1)"
		apart  = "goroutine 11 [running]:\nmain.watch()"
	)
	for _, c := range []struct {
		trace []string
		want  bool
	}{
		{[]string{apart, waits, closes}, true},
		{[]string{closes, other}, true},
		{[]string{other}, false},
		{[]string{closes, runs}, false},
		{[]string{apart, waits}, false},
	} {
		if got := deadlocked(keepers([]byte(strings.Join(c.trace, "\n\n")))); got != c.want {
			t.Errorf("deadlocked %v, want %v:\n%s", got, c.want, strings.Join(c.trace, "\n\n"))
		}
	}
}

// TestLateThoughAlone has requests wait for the timeout of a Redis so far that nobody has time to wait for
// another: it is to blame for those that had not to.
func TestLateThoughAlone(t *testing.T) {
	for others, want := range []int{1, 1, 0, 0} {
		s := &setup{way: way{round: 8 * time.Millisecond, timeout: 10 * time.Millisecond}}
		s.add(site{Kind: bounded, Rules: []rule{{Algorithm: "gcra", Limit: 100, Window: 3 * time.Second}}})
		o := newOracle(&world{plan: &Plan{setup: s}})
		for i := range 20 {
			at := time.Duration(i) * time.Second
			for range others {
				o.requests = append(o.requests, &request{process: "i0.1", start: at - 5*time.Millisecond, decided: at + 4*time.Millisecond})
			}
			q := &request{process: "i0.1", start: at, decided: at + 10*time.Millisecond}
			o.requests, o.timely = append(o.requests, q), append(o.timely, q)
		}
		if o.lates(); len(o.violations) != want {
			t.Errorf("with %d others: %v, want %d violations", others, o.violations, want)
		}
	}
}

// TestDenialIsOlderThanItsReply asks until when a client is denied whose denial took 36 ms to arrive: the
// time that it is told counts from when Redis decided. If Redis' clock was set within the window of 2 s, the
// window ends later there than instances know, until one puts that back.
func TestDenialIsOlderThanItsReply(t *testing.T) {
	const start = 10 * time.Second
	for _, c := range []struct {
		decided, stepped time.Duration
		want             int
	}{
		{990 * time.Millisecond, 5 * time.Second, 1},
		{1030 * time.Millisecond, 5 * time.Second, 0},
		{990 * time.Millisecond, 9 * time.Second, 0},
	} {
		s := &setup{way: way{round: 12 * time.Millisecond, rare: true, timeout: 100 * time.Millisecond}}
		s.add(site{Kind: bounded, Rules: []rule{{Algorithm: "fixed_window", Limit: 1, Window: 2 * time.Second}}})
		o := newOracle(&world{plan: &Plan{setup: s}})
		o.spans = []*span{{what: "clock-back", from: c.stepped, to: c.stepped, stepped: true, instance: -1, site: -1}}
		o.denied([]*request{
			{key: "k", cost: 1, start: start, decided: start + 36*time.Millisecond, answer: http.StatusTooManyRequests, retry: 2},
			{key: "k", cost: 1, start: start + c.decided - 12*time.Millisecond, decided: start + c.decided, admitted: true},
		})
		if got := len(o.violations); got != c.want {
			t.Errorf("admitted %v after the denial was sent, the clock set at %v: %d violations, want %d", c.decided, c.stepped, got, c.want)
		}
	}
}
