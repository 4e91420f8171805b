package simulation

import (
	"net/http"
	"testing"
	"time"
)

// TestEvictedCharge checks when a charge must be in Redis although the key was evicted: once the
// instance that knows of it has asked for the key twice, for no other has to notice.
func TestEvictedCharge(t *testing.T) {
	at := func(process string, start time.Duration) *request {
		return &request{process: process, cost: 1, admitted: true, start: start, decided: start + time.Millisecond, answered: start + time.Millisecond, end: start + time.Millisecond}
	}
	charged := at("a", 10*time.Second)
	for name, c := range map[string]struct {
		loss  string
		later []*request
		least int64
	}{
		"flush":                   {loss: "flush", least: 1},
		"not asked for again":     {loss: "evict", least: 0},
		"asked for by another":    {loss: "evict", later: []*request{at("b", 50*time.Second), at("b", 51*time.Second)}, least: 2},
		"asked for once":          {loss: "evict", later: []*request{at("a", 50*time.Second)}, least: 1},
		"asked for twice":         {loss: "evict", later: []*request{at("a", 50*time.Second), at("a", 51*time.Second)}, least: 3},
		"asked for twice at once": {loss: "evict", later: []*request{at("a", 50*time.Second), at("a", 50*time.Second)}, least: 2},
	} {
		o := &oracle{w: &world{plan: &Plan{setup: &setup{way: way{timeout: 25 * time.Millisecond}}}}, spans: []*span{{what: c.loss, from: 30 * time.Second, to: 30 * time.Second, loses: true, site: -1}}}
		if least, _ := o.charged(&site{Kind: ledger}, append([]*request{charged}, c.later...)); least != c.least {
			t.Errorf("%s: Redis must have been charged %d, want %d", name, least, c.least)
		}
	}
}

// TestRevivedPermits checks when a place must be given that nobody holds: not before permits have lapsed that count
// again after a step of Redis' clock, if that was in an outage.
func TestRevivedPermits(t *testing.T) {
	for name, c := range map[string]struct {
		away time.Duration // for how long; it begins 10 s before the step, at 50 s
		at   time.Duration // of the denial
		want int
	}{
		"step in an outage":                {away: 20 * time.Second, at: 90 * time.Second, want: 0},
		"step in an outage, lapsed":        {away: 20 * time.Second, at: 110 * time.Second, want: 1},
		"step after an outage":             {away: time.Second, at: 70 * time.Second, want: 1},
		"step after an outage, not told":   {away: time.Second, at: 60 * time.Second, want: 0},
		"step in an outage, a minute long": {away: time.Minute, at: 125 * time.Second, want: 0},
	} {
		s := &setup{}
		s.add(site{Kind: inFlight, Places: 2, Rules: []rule{{Algorithm: "fixed_window", Limit: 1, Window: 2 * time.Second}}})
		o := newOracle(&world{plan: &Plan{setup: s}})
		o.spans = []*span{
			{what: "partition", from: 40 * time.Second, to: 40*time.Second + c.away, away: true, instance: -1, site: -1},
			{what: "clock-back", from: 50 * time.Second, to: 50 * time.Second, stepped: true, instance: -1, site: -1},
		}
		if o.free([]*request{{start: c.at, end: c.at, answer: http.StatusTooManyRequests}}); len(o.violations) != c.want {
			t.Errorf("%s: %v, want %d violations", name, o.violations, c.want)
		}
	}
}

// TestFeignedFailure checks when a report of count_status must be in Redis: not if Redis may have answered the check and
// the debt that followed it as if they had failed.
func TestFeignedFailure(t *testing.T) {
	for _, c := range []struct {
		feigns bool
		start  time.Duration
		want   bool
	}{{true, 9 * time.Second, true}, {true, 11 * time.Second, false}, {false, 11 * time.Second, true}, {true, 18 * time.Second, true}} {
		o := &oracle{w: &world{plan: &Plan{setup: &setup{way: way{timeout: 25 * time.Millisecond}}}}}
		o.spans = []*span{{what: "strange", from: 10 * time.Second, to: 17 * time.Second, away: true, feigns: c.feigns, instance: -1, site: -1}}
		o.comebacks = []comeback{{"i3", 12 * time.Second, 17200 * time.Millisecond}}
		q := &request{instance: "i3", cost: 2, status: 401, admitted: true, start: c.start, decided: c.start + time.Millisecond, answered: c.start + time.Second/2, end: c.start + time.Second/2}
		if got := o.reaches(&site{Kind: tally}, q); got != c.want {
			t.Errorf("asked at %v, feigns %v: reaches Redis %v, want %v", c.start, c.feigns, got, c.want)
		}
	}
}

// TestOutlastedCharge checks what Redis may have been charged of a request that a fault met: twice its cost, if the fault
// lasted so long that others may have been charged what it held.
func TestOutlastedCharge(t *testing.T) {
	for _, c := range []struct {
		kind        kind
		began, long time.Duration
		most        int64
	}{
		{tally, 10100 * time.Millisecond, 36 * time.Second, 4},
		{tally, 9 * time.Second, 36 * time.Second, 2},
		{tally, 10100 * time.Millisecond, 6 * time.Second, 2},
		{ledger, 10100 * time.Millisecond, 36 * time.Second, 2},
	} {
		o := newOracle(&world{plan: &Plan{setup: &setup{way: way{timeout: 25 * time.Millisecond}}}})
		o.spans = []*span{{what: "oom", from: c.began, to: c.began + c.long, away: true, answers: true, instance: -1, site: -1}}
		q := &request{cost: 2, status: 404, admitted: true, start: 10 * time.Second, decided: 10001 * time.Millisecond, answered: 10200 * time.Millisecond, end: 10200 * time.Millisecond}
		if _, most := o.charged(&site{Kind: c.kind}, []*request{q}); most != c.most {
			t.Errorf("%s, a fault from %v for %v: at most %d, want %d", c.kind, c.began, c.long, most, c.most)
		}
	}
}
