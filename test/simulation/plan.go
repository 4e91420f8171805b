package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Plan is all that happens in a run. It is drawn from the seed before the run, so that
// parts of it can be left out.
type Plan struct {
	Seed      uint64 // from which it was drawn
	Without   []int  // numbers of steps that are left out
	Instances int    // 0: as drawn
	Quiet     bool   // without faults
	Near      bool   // Redis is near, whatever was drawn

	setup *setup
	drawn int // instances
	steps []step
	load  time.Duration // how long there are steps
}

// numbers returns the numbers of the steps, faults first.
func (p *Plan) numbers() (list []int) {
	for i := range p.steps {
		if !p.steps[i].client {
			list = append(list, p.steps[i].number)
		}
	}
	for i := range p.steps {
		if p.steps[i].client {
			list = append(list, p.steps[i].number)
		}
	}
	return list
}

// step is a client, a fault or another event.
type step struct {
	number   int
	what     string // of clients, of faults
	client   bool
	at, long time.Duration
	instance int // -1: any or all
	site     int
	key      string
	rate     float64       // requests a second
	burst    time.Duration // how long it sends, between pauses of rest; rest 0: always
	rest     time.Duration
	holds    time.Duration // how long its requests are answered; 0: as drawn
	seed     uint64
}

func (s *step) String() string {
	text := fmt.Sprintf("#%d %s", s.number, s.what)
	if s.instance >= 0 {
		text += fmt.Sprintf(" i%d", s.instance)
	}
	if s.client {
		text += fmt.Sprintf(" site %d key %s %.1f/s", s.site, s.key, s.rate)
	}
	if s.holds > 0 {
		text += fmt.Sprintf(", answered for %v", s.holds)
	}
	if s.long > 0 {
		text += " for " + s.long.Round(time.Millisecond).String()
	}
	return text
}

// warmUp is how long a run is left alone at its beginning.
const warmUp = 8 * time.Second

// draw draws what happens.
func (p *Plan) draw() {
	r := rand.New(rand.NewPCG(p.Seed, 1)) //nolint:gosec // a simulation
	p.drawn = 3 + r.IntN(6)
	p.Instances = cmp.Or(p.Instances, p.drawn)
	p.setup, p.steps = drawSetup(r), nil
	// What was added to plans is drawn apart from the rest.
	more, sites := rand.New(rand.NewPCG(p.Seed, 6)), len(p.setup.sites) //nolint:gosec // a simulation
	p.setup.drawMore(more)
	p.setup.drawCalendars(rand.New(rand.NewPCG(p.Seed, 8)))               //nolint:gosec // a simulation
	p.setup.drawList(rand.New(rand.NewPCG(p.Seed, 9)))                    //nolint:gosec // a simulation
	if p.setup.way = drawWay(rand.New(rand.NewPCG(p.Seed, 10))); p.Near { //nolint:gosec // a simulation
		p.setup.way = near
	}
	p.load = time.Duration(60+r.IntN(90)) * time.Second
	for i := range sites {
		p.drawClients(r, i)
	}
	intensity := r.IntN(5)
	p.drawFaults(r, []int{1, 3, 6, 10, 16}[intensity])
	p.drawEvents(r)
	for i := sites; i < len(p.setup.sites); i++ {
		p.drawClients(more, i)
	}
	p.drawMore(more)
	p.drawMeetings(more)
	p.drawStories(more)
	p.drawReload(rand.New(rand.NewPCG(p.Seed, 7))) //nolint:gosec // a simulation
	for i := range p.steps {
		p.steps[i].number = i
		if p.steps[i].instance >= 0 {
			p.steps[i].instance %= p.Instances
		}
	}
	p.steps = slices.DeleteFunc(p.steps, func(s step) bool {
		k := faultKinds[s.what]
		return slices.Contains(p.Without, s.number) || k != nil && (p.Quiet || p.keeps() && (k.loses || k.stepped))
	})
	slices.SortStableFunc(p.steps, func(a, b step) int { return int(a.at - b.at) })
}

// keeps says whether Redis keeps its memory and its clock in all of a plan, as in one of four: then each charge that it
// does not have was lost by an instance.
func (p *Plan) keeps() bool { return p.Seed%4 == 0 }

// drawClients draws the clients of a site: a hot key, and others.
func (p *Plan) drawClients(r *rand.Rand, i int) {
	one := &p.setup.sites[i]
	for k := range 2 + r.IntN(2) {
		c := step{client: true, what: "load", site: i, key: fmt.Sprintf("k%d", k), instance: -1, seed: r.Uint64()}
		c.at = warmUp + time.Duration(r.Int64N(int64(p.load/4)))
		c.long = p.load - c.at
		if k == 0 {
			c.rate = 1 + 6*r.Float64()
			if one.Kind == bounded || one.Kind == blocking || one.Kind == leased || one.Kind == counted {
				c.rate = min(12, 2.5*float64(one.Rules[0].Limit)/one.Rules[0].Window.Seconds())
			}
		} else {
			c.rate = 0.3 + r.Float64()
		}
		if r.IntN(3) == 0 {
			c.instance = r.IntN(p.drawn)
		}
		if one.Kind == leased && k == 0 { // only a hot key is leased
			c.rate, c.burst, c.rest, c.instance = 50, []time.Duration{2 * time.Second, 8 * time.Second}[r.IntN(2)], one.Rules[0].Window+time.Second, r.IntN(p.drawn)
		}
		p.steps = append(p.steps, c)
	}
	if one.Kind == bounded || one.Kind == blocking || one.Kind == denying {
		p.steps = append(p.steps, step{client: true, what: "patient", site: i, key: "patient", instance: -1, seed: r.Uint64(), at: warmUp, long: p.load - warmUp})
	}
}

func (p *Plan) drawFaults(r *rand.Rand, n int) {
	list := faultsAt(p.setup.topology)
	for range n {
		f := step{what: list[r.IntN(len(list))], instance: -1, seed: r.Uint64()}
		f.at = warmUp + 4*time.Second + time.Duration(r.Int64N(int64(p.load-warmUp-14*time.Second)))
		f.long = min(time.Duration(r.ExpFloat64()*float64(4*time.Second))+20*time.Millisecond, p.load-f.at)
		if r.IntN(2) == 0 {
			f.instance = r.IntN(p.drawn)
		}
		p.steps = append(p.steps, f)
	}
}

func (p *Plan) drawEvents(r *rand.Rand) {
	for range r.IntN(5) {
		e := step{what: eventNames[r.IntN(len(eventNames))], instance: r.IntN(p.drawn), seed: r.Uint64()}
		e.at = warmUp + time.Duration(r.Int64N(int64(p.load-warmUp-10*time.Second)))
		e.long = time.Second + time.Duration(r.Int64N(int64(10*time.Second)))
		p.steps = append(p.steps, e)
	}
}

// rare returns the faults and events that not all runs can have.
func (p *Plan) rare() (list []string) {
	for _, name := range faultsAt(p.setup.topology) {
		if len(faultKinds[name].at) > 0 {
			list = append(list, name)
		}
	}
	if p.setup.source != "" {
		list = append(list, "document")
	}
	if slices.ContainsFunc(p.setup.sites, func(one site) bool { return len(one.Listed) > 0 }) {
		list = append(list, "list")
	}
	return list
}

// sometime draws a time that leaves some for what follows.
func (p *Plan) sometime(r *rand.Rand) time.Duration {
	return warmUp + 4*time.Second + time.Duration(r.Int64N(int64(p.load-warmUp-20*time.Second)))
}

// drawMore draws what only some runs can have: of that enough.
func (p *Plan) drawMore(r *rand.Rand) {
	add := func(what string, instance int) {
		s := step{what: what, instance: instance, seed: r.Uint64(), at: p.sometime(r)}
		s.long = 200*time.Millisecond + time.Duration(r.Int64N(int64(6*time.Second)))
		p.steps = append(p.steps, s)
	}
	if list := p.rare(); len(list) > 0 {
		for range 1 + r.IntN(3) {
			add(list[r.IntN(len(list))], -1)
		}
	}
	if slices.ContainsFunc(p.setup.sites, func(one site) bool { return one.Kind == blocking }) {
		add("key-reset", r.IntN(p.drawn))
		add("key-reset", r.IntN(p.drawn))
	}
}

// drawMeetings draws faults and events that meet what is rarely under way by chance: a
// reload, and an outage that has lasted for some time. Seeds that follow one another take
// all faults and events in turn.
func (p *Plan) drawMeetings(r *rand.Rand) {
	kinds, rare := slices.Concat(faultsAt(p.setup.topology), eventNames), p.rare()
	meet := func(n uint64, at time.Duration) {
		s := step{what: kinds[n%uint64(len(kinds))], instance: r.IntN(p.drawn), seed: r.Uint64(), at: at}
		if len(rare) > 0 && r.IntN(4) == 0 {
			s.what = rare[r.IntN(len(rare))]
		}
		if s.long = 200*time.Millisecond + time.Duration(r.Int64N(int64(4*time.Second))); faultKinds[s.what] != nil && r.IntN(2) == 0 {
			s.instance = -1
		}
		if (s.what == "die" || s.what == "stop") && r.IntN(2) == 0 { // the start of the instance meets it
			s.at = max(warmUp, s.at-s.long)
		}
		p.steps = append(p.steps, s)
	}
	if r.IntN(5) > 0 {
		begins := p.sometime(r)
		what := []string{"reload", "reload-pool"}[r.IntN(2)]
		p.steps = append(p.steps, step{what: what, instance: r.IntN(p.drawn), seed: r.Uint64(), at: begins})
		meet(p.Seed, begins+time.Duration(r.Int64N(int64(grace))))
	}
	if p.Seed%2 == 0 {
		begins := p.sometime(r)
		what, long := []string{"kill", "pause", "partition"}[r.IntN(3)], 5*time.Second+time.Duration(r.Int64N(int64(5*time.Second)))
		p.steps = append(p.steps, step{what: what, instance: -1, seed: r.Uint64(), at: begins, long: long})
		meet(p.Seed/2, begins+2*time.Second+time.Duration(r.Int64N(int64(3*time.Second))))
	}
}
