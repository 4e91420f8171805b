package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/ops/running"
	"github.com/dianalimiter/diana/internal/topk"
	"github.com/dianalimiter/diana/stores"
)

const (
	lookEvery   = 5 * time.Second         // how often all are told that somebody looks
	readEvery   = 2 * time.Second         // how often their figures are read at most
	firstLook   = 1500 * time.Millisecond // how long a first look waits for their answers
	rememberFor = 10 * time.Minute        // how long an instance that does not answer is remembered
	rememberAll = 1000                    // instances that are remembered, unless more answer
	freshFor    = 15 * time.Second        // how long figures count
	otherZones  = 1000                    // zones that are named though only other instances have them
	memberKeys  = 20                      // of a zone, in the figures
	withKeys    = stores.MaxFigures / 2   // bytes of the figures up to which zones have their keys, and more groups than that
	withZones   = stores.MaxFigures - 2048
)

// lookout is what a process knows of the other instances.
type lookout struct {
	mu           sync.Mutex
	place        string // the server of which it is known
	looked, read time.Time
	seen         map[uint64]seen
}

// seen is what an instance wrote last.
type seen struct {
	cli.Member
	unreadable bool // what it wrote: it is of another version
}

var lookouts process.Var[lookout]

// Figures returns what an instance tells the others, as JSON: the zones with the most requests
// have their keys, and those for which there is no room are one.
func Figures(of *running.Instance) []byte {
	in := instance{of}
	m := in.self()
	zones := in.memberZones()
	slices.SortStableFunc(zones, func(a, b cli.MemberZone) int { return cmp.Compare(total(b.Decisions), total(a.Decisions)) })
	size, rest := 2048, cli.MemberZone{Decisions: make(map[string]uint64)}
	for _, z := range zones {
		text, _ := json.Marshal(z)
		if size+len(text) > withKeys && (z.Top != nil || z.Groups != nil) {
			z.Top, z.Groups = nil, metrics.SumGroups(memberKeys, z.Groups)
			text, _ = json.Marshal(z)
		}
		if size += len(text) + 1; size > withZones {
			addAll(rest.Decisions, z.Decisions)
			rest.Cost += z.Cost
			continue
		}
		m.Zones = append(m.Zones, z)
	}
	if len(rest.Decisions) > 0 {
		m.Zones = append(m.Zones, rest)
	}
	text, _ := json.Marshal(&m)
	return text
}

func total(decisions map[string]uint64) (n uint64) {
	for _, d := range decisions {
		n += d
	}
	return n
}

// addAll adds numbers to others by name.
func addAll(to, more map[string]uint64) {
	for name, n := range more {
		to[name] += n
	}
}

// self returns this instance, without its zones.
func (in instance) self() cli.Member {
	m := cli.Member{Instance: in.answerInstance(), Seen: time.Now(), Mode: stores.ModeLocal.String(), ModeSince: in.Started, Requests: metrics.Of(in.Process).Requests.Requests()}
	for i, s := range in.answerStores() {
		if i == 0 || !s.Up {
			m.Mode, m.ModeSince = s.Mode, s.Since
		}
	}
	return m
}

// memberZones returns what this instance counts of each zone.
func (in instance) memberZones() (list []cli.MemberZone) {
	for _, z := range in.Zones() {
		list = append(list, memberZone(z))
	}
	return list
}

func memberZone(z *limiter.Zone) cli.MemberZone {
	m := cli.MemberZone{Zone: z.Name, Cost: settledOf(z), Groups: z.Spent()}
	m.Decisions, m.Denied, m.ShadowDenied = z.Decisions()
	m.Places = z.PlaceState()
	maps.DeleteFunc(m.Decisions, func(_ string, n uint64) bool { return n == 0 })
	if top := answerTop(z); len(top.Busy) > 0 {
		for _, hits := range []*[]topk.Hit{&top.Busy, &top.Denied, &top.Costly} {
			*hits = (*hits)[:min(memberKeys, len(*hits))]
		}
		m.Top = &top
	}
	return m
}

// shared returns the first store, if it has a fleet.
func (in instance) shared() (s stores.Fleet, ok bool) {
	if len(in.Stores) > 0 {
		s, ok = in.Stores[0].(stores.Fleet)
	}
	return s, ok
}

// fleet returns the instances that share the first store, with what those count that write their
// figures. This instance counts as it is now.
func (in instance) fleet(ctx context.Context) (f cli.Fleet, counted []cli.Member) {
	own, unreadable := in.self(), 0
	own.Self, own.Zones = true, in.memberZones()
	if s, ok := in.shared(); !ok {
		f.Instances, f.Why = 1, "no store is shared"
	} else {
		own.ID = strconv.FormatUint(s.Instance(), 16)
		l := lookouts.Of(in.Process)
		if err := l.look(ctx, s); err != nil {
			f.Why = loglimit.Short(err)
			if advice := stores.Advice(err); advice != "" {
				f.Why += ": " + advice
			}
		}
		f.Instances = max(1, s.Status().Instances)
		f.Members, unreadable = l.members(s.Instance(), f.Why != "")
	}
	f.Alone = f.Why != ""
	f.Members = slices.Insert(f.Members, 0, own)
	missing := int64(0)
	for i := range f.Members {
		m := &f.Members[i]
		m.OtherBuild, m.OtherRules = m.Diana != own.Diana || m.Caddy != own.Caddy, m.Config != own.Config
		if m.Missing {
			missing++
		} else {
			counted = append(counted, *m)
		}
		m.Zones = nil
	}
	f.Answered = len(counted)
	f.Instances = max(f.Instances, int64(f.Answered+unreadable))
	if gone := f.Instances - int64(f.Answered); !f.Alone && gone == 0 { // those that stopped are not missing
		f.Members = slices.DeleteFunc(f.Members, func(m cli.Member) bool { return m.Missing })
	} else {
		f.Silent = max(0, gone-missing)
	}
	return f, counted
}

// look tells the others that somebody looks, and reads what they wrote, neither too often. The
// first time it waits for them.
func (l *lookout) look(ctx context.Context, s stores.Fleet) error {
	l.mu.Lock()
	now := time.Now()
	if place := s.Status().Place; place != l.place {
		l.place, l.seen, l.looked, l.read = place, nil, time.Time{}, time.Time{}
	}
	tells, first, reads := now.Sub(l.looked) > lookEvery, now.Sub(l.looked) > freshFor, now.Sub(l.read) > readEvery
	if tells {
		l.looked = now
	}
	if reads = reads || first || !s.Status().Up; reads { // of a Cluster, a node that is away may not be that of the figures
		l.read = now
	}
	l.mu.Unlock()
	var err error
	if tells {
		err = s.Look(ctx)
	}
	for wait := 25 * time.Millisecond; err == nil && reads; wait *= 2 {
		var all map[uint64]stores.Figures
		if all, err = s.Fleet(ctx); err == nil {
			l.remember(all)
		}
		if !first || int64(len(all)) >= s.Status().Instances || time.Since(now) > firstLook {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.looked, l.read = time.Time{}, time.Time{}
	}
	return err
}

// remember keeps what instances wrote.
func (l *lookout) remember(all map[uint64]stores.Figures) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = make(map[uint64]seen)
	}
	for id, f := range all {
		var m seen
		if json.Unmarshal(f.Text, &m.Member) != nil {
			m = seen{cli.Member{Instance: cli.Instance{Host: "unreadable", Diana: "another version"}, Mode: stores.ModeShared.String()}, true}
		}
		m.setTimes(time.Now().Add(-f.Age))
		m.ID = strconv.FormatUint(id, 16)
		l.seen[id] = m
	}
	for id, m := range l.seen {
		switch age := time.Since(m.Seen); {
		case age > rememberFor || age > freshFor && len(l.seen) > rememberAll:
			delete(l.seen, id)
		case age > freshFor && m.Zones != nil: // it is in no sum
			m.Zones = nil
			l.seen[id] = m
		}
	}
}

// setTimes sets when an instance wrote this, by this instance's clock, and its other times by how much the clocks differ.
func (m *seen) setTimes(written time.Time) {
	ahead := m.Seen.Sub(written)
	if m.Seen.IsZero() { // of another version
		ahead = 0
	}
	times := []*time.Time{&m.Since, &m.Started, &m.ModeSince}
	for _, z := range m.Zones {
		if z.Places != nil && z.Places.Last != nil {
			times = append(times, &z.Places.Last.At)
		}
	}
	for _, t := range times {
		if *t = t.Add(-ahead); t.Year() < 0 || t.Year() > 9999 { // JSON has no other years
			*t = time.Time{}
		}
	}
	m.Seen = written
}

// members returns the others, by host, and how many write what cannot be read. Without a store all are missing.
func (l *lookout) members(own uint64, alone bool) (list []cli.Member, unreadable int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, m := range l.seen {
		if id == own {
			continue
		}
		m.Missing = alone || time.Since(m.Seen) > freshFor
		if m.unreadable && !m.Missing {
			m.Missing = true
			unreadable++
		}
		list = append(list, m.Member)
	}
	slices.SortFunc(list, func(a, b cli.Member) int { return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.ID, b.ID)) })
	return list, unreadable
}

// answerFleetZones returns the zones of this instance with what all instances count of them.
func (in instance) answerFleetZones(ctx context.Context) cli.Zones {
	all := in.answerZones()
	f, counted := in.fleet(ctx)
	all.Fleet, all.Requests = &f, sumRequests(counted)
	at, named := make(map[string]int), len(all.Zones)+otherZones
	for i := range all.Zones {
		z := &all.Zones[i]
		at[z.Name], z.Denied, z.ShadowDenied, z.Cost = i, nil, nil, 0
		clear(z.Decisions)
	}
	for _, m := range counted {
		for _, mz := range m.Zones {
			name := mz.Zone
			if _, ok := at[name]; !ok && len(all.Zones) >= named {
				name = ""
			}
			i, ok := at[name]
			if !ok {
				i = len(all.Zones)
				at[name] = i
				all.Zones = append(all.Zones, cli.Zone{Name: cmp.Or(name, "(others)"), Origin: "another instance", Enabled: true, Rules: []cli.Rule{}})
			}
			z := &all.Zones[i]
			z.Cost += mz.Cost
			if mz.Places != nil {
				z.PlacesOfAll = append(z.PlacesOfAll, cli.InstancePlaces{PlaceState: *mz.Places, ID: m.ID, Host: m.Host})
			}
			for _, sum := range []struct {
				to   *map[string]uint64
				more map[string]uint64
			}{{&z.Decisions, mz.Decisions}, {&z.Denied, mz.Denied}, {&z.ShadowDenied, mz.ShadowDenied}} {
				if *sum.to == nil {
					*sum.to = make(map[string]uint64)
				}
				addAll(*sum.to, sum.more)
			}
		}
	}
	return all
}

func sumRequests(counted []cli.Member) (sum metrics.Requests) {
	for _, m := range counted {
		sum.Allowed += m.Requests.Allowed
		sum.Denied += m.Requests.Denied
		sum.Delayed += m.Requests.Delayed
		sum.Left += m.Requests.Left
	}
	return sum
}

// byZone returns what the instances that are counted count of each zone.
func byZone(counted []cli.Member) map[string][]cli.MemberZone {
	zones := make(map[string][]cli.MemberZone)
	for _, m := range counted {
		for _, z := range m.Zones {
			zones[z.Zone] = append(zones[z.Zone], z)
		}
	}
	return zones
}

// fleetTop returns the most frequent keys of a zone on the instances that are counted.
func fleetTop(zone string, on []cli.MemberZone) cli.Top {
	t := cli.Top{Zone: zone}
	var busy, denied, costly [][]topk.Hit
	for _, z := range on {
		if z.Top != nil {
			busy, denied, costly = append(busy, z.Top.Busy), append(denied, z.Top.Denied), append(costly, z.Top.Costly)
		}
	}
	t.Busy, t.Denied, t.Costly = merged(busy), merged(denied), merged(costly)
	return t
}

// merged returns the keys of several lists with their numbers added up. A key has the cause of the
// instance that denied it most.
func merged(lists [][]topk.Hit) []topk.Hit {
	sum, most := make(map[string]*topk.Hit), make(map[string]uint64)
	for _, h := range slices.Concat(lists...) {
		x := sum[h.Key]
		if x == nil {
			x = &topk.Hit{Key: h.Key}
			sum[h.Key] = x
		}
		x.Times, x.Name, x.Blocked = x.Times+h.Times, cmp.Or(x.Name, h.Name), max(x.Blocked, h.Blocked)
		if x.Parts == nil {
			x.Parts = h.Parts
		}
		if h.Times > most[h.Key] {
			most[h.Key], x.Cause = h.Times, h.Cause
		}
	}
	all := []topk.Hit{}
	for _, h := range sum {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b topk.Hit) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), strings.Compare(a.Key, b.Key))
	})
	return all[:min(maxTop, len(all))]
}

// answerFleetTops returns the most frequent keys of every zone that has met requests, of
// all instances.
func (in instance) answerFleetTops(ctx context.Context) cli.Tops {
	f, counted := in.fleet(ctx)
	tops := cli.Tops{Fleet: &f, Zones: []cli.Top{}}
	for zone, on := range byZone(counted) {
		if t := fleetTop(zone, on); len(t.Busy) > 0 { // an instance of another version may not have them
			tops.Zones = append(tops.Zones, t)
		}
	}
	slices.SortFunc(tops.Zones, func(a, b cli.Top) int {
		return cmp.Or(cmp.Compare(b.Busy[0].Times, a.Busy[0].Times), strings.Compare(a.Zone, b.Zone))
	})
	tops.Zones = tops.Zones[:min(len(tops.Zones), len(in.Zones())+otherZones)]
	return tops
}
