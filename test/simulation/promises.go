package simulation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dianalimiter/diana/internal/cli"
)

// finish checks what can be checked when all is quiet.
func (o *oracle) finish() {
	o.mu.Lock()
	byKey := make(map[string][]*request)
	for _, q := range o.requests {
		id := fmt.Sprintf("%03d %s", q.site, q.key)
		byKey[id] = append(byKey[id], q)
	}
	ids := names(byKey)
	for _, id := range ids {
		o.bounds(byKey[id])
		o.same(byKey[id])
		o.blocks(byKey[id])
	}
	o.mu.Unlock()
	for _, id := range ids {
		o.charges(byKey[id])
	}
	o.documents()
	o.rest()
}

// charge is a cost that was charged between two instants.
type charge struct {
	from, to time.Duration
	cost     int64
	q        *request
}

// chargesOf returns what the requests of a key were charged.
func chargesOf(one *site, list []*request) (all []charge) {
	for _, q := range list {
		switch {
		case !q.admitted:
		case one.Kind == counted || one.Kind == tally:
			if q.status/100 == 4 && !q.panics && q.answered > 0 {
				all = append(all, charge{q.decided, q.end, q.cost, q})
			}
		default:
			all = append(all, charge{q.start, q.decided, q.cost, q})
		}
	}
	slices.SortFunc(all, func(a, b charge) int { return int(a.from - b.from) })
	return all
}

// bounds checks every window of a key against every rule. o.mu is held.
func (o *oracle) bounds(list []*request) {
	i := list[0].site
	one := &o.w.plan.setup.sites[i]
	if hour := one.Rules[0].Window > time.Hour; hour {
		return
	}
	list = slices.DeleteFunc(slices.Clone(list), func(q *request) bool { return q.lost })
	all := chargesOf(one, list)
	for n := range one.Rules {
		window := one.Rules[n].Window
		for a := range all {
			from := all[a].from
			sum, last := int64(0), a
			for b := a; b < len(all) && all[b].from < from+window; b++ {
				if all[b].to < from+window {
					sum += all[b].cost
					last = b
				}
			}
			o.checked["bound"]++
			if limit, why := o.allowed(i, n, list[0].key, from, from+window); limit >= 0 && sum > limit {
				o.violateLocked("bound", fmt.Sprintf("site %d (%s) key %s rule %+v: %d admitted in the window from %v, %d allowed (%s)",
					i, one.Name, list[0].key, one.Rules[n], sum, from, limit, why), all[last].q)
				return
			}
		}
	}
}

// allowed returns what a window may admit. -1: anything.
func (o *oracle) allowed(site, n int, key string, from, to time.Duration) (limit int64, why string) {
	one := &o.w.plan.setup.sites[site]
	shares, most := int64(o.shares(from, to)), int64(0)
	var alone int64
	for _, rules := range o.limits[site] {
		r := rules[n]
		most = max(most, r.bound(1, one.MaxCost))
		alone = max(alone, int64(len(o.w.instances))*r.bound(shares, one.MaxCost))
	}
	limit = most
	reasons := []string{fmt.Sprintf("bound %d", most)}
	if away := o.touches(from, to, one.isAway); len(away) > 0 {
		if one.Kind == allowing {
			return -1, ""
		}
		limit += alone
		reasons = append(reasons, fmt.Sprintf("alone %d", alone))
	}
	for _, s := range o.touches(from, to, func(s *span) bool { return s.loses || s.stepped || s.site == site && (s.key == "" || s.key == key) }) {
		limit += most
		reasons = append(reasons, s.what)
	}
	return limit, strings.Join(reasons, ", ")
}

// same checks prevent_duplicates. o.mu is held.
func (o *oracle) same(list []*request) {
	one := &o.w.plan.setup.sites[list[0].site]
	if one.Kind != duplicates {
		return
	}
	last := make(map[string]*request)
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *request) int { return int(a.decided - b.decided) })
	for _, q := range list {
		before := last[q.path]
		if q.admitted && !q.lost {
			last[q.path] = q
		}
		if before == nil || !q.admitted || q.lost || q.decided-before.start >= one.Window {
			continue
		}
		o.checked["duplicates"]++
		if o.calm(before.start-recovery, q.decided) {
			o.violateLocked("a duplicate is denied", fmt.Sprintf("%s was admitted %v before", q.path, q.decided-before.decided), q)
		}
	}
}

// charges checks what Redis was charged of a key whose limit denies nothing.
func (o *oracle) charges(list []*request) {
	i, key := list[0].site, list[0].key
	one := &o.w.plan.setup.sites[i]
	if one.Kind != ledger && one.Kind != tally && one.Kind != settled {
		return
	}
	o.mu.Lock()
	least, most := o.charged(one, list)
	exempt := len(o.touches(0, o.w.now(), func(s *span) bool { return s.site == i && s.key == key })) > 0
	o.mu.Unlock()
	if exempt {
		return
	}
	used, mode, err := o.used(one.Name, key, one.Rules[0].Limit)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || mode != "shared" {
		o.violateLocked("after a quiet minute Redis is shared", fmt.Sprintf("%s %s: mode %q: %v", one.Name, key, mode, err), nil)
		return
	}
	o.checked["charges"]++
	o.w.timelineAdd(o.w.now(), fmt.Sprintf("%s %s: Redis has %d charged, want %d to %d", one.Name, key, used, least, most))
	if used < least || used > most {
		o.violateLocked("each admitted cost is charged once", fmt.Sprintf("%s %s (%s): Redis has %d charged, want %d to %d", one.Name, key, one.Rules[0].Algorithm, used, least, most), list[len(list)-1])
	}
}

// charged returns what Redis must have been charged, and what it may have been.
func (o *oracle) charged(one *site, list []*request) (least, most int64) {
	ended := len(o.touches(0, o.w.now(), isEnd)) > 0
	lost := o.touches(0, o.w.now(), isLoss)
	aways := o.touches(0, o.w.now(), isAway)
	for _, q := range list {
		cost := q.cost
		switch one.Kind {
		case tally:
			if q.status/100 != 4 {
				cost = 0
			}
		case settled:
			cost = max(q.cost, q.tokens)
		}
		sure := q.admitted && !q.lost && !q.panics && q.cancel == 0
		away := len(o.touches(q.start, q.end, isAway)) > 0
		switch {
		case one.Kind == tally: // a report can be repeated
			sure = sure && len(o.touches(q.start, q.end+30*time.Second, func(s *span) bool { return s.away && s.to-s.from > 10*time.Second })) == 0
		case away:
			sure = sure && q.decided == q.start && q.end == q.answered
		}
		for _, s := range lost {
			sure = sure && (q.end < s.from-recovery || q.start > s.to+recovery)
		}
		if ended && len(lost) > 0 || away && o.replaced(q) {
			sure = false // what only the instance knew is gone with it
		}
		if sure {
			least += cost
		}
		if q.admitted || away || q.cancel > 0 {
			most += max(cost, q.cost)
		}
	}
	// A share of what was known is rounded each time that an instance goes alone.
	slack := int64(len(aways) * len(o.w.instances))
	return max(0, least-slack), most + slack
}

// replaced says whether the process that served a request has ended.
func (o *oracle) replaced(q *request) bool {
	for _, in := range o.w.instances {
		if in.name == q.instance {
			return in.addressNow() != q.process
		}
	}
	return true
}

// used returns what Redis has charged of a key, by the admin API of the first instance
// that runs.
func (o *oracle) used(zone, key string, limit int64) (used int64, mode string, err error) {
	for _, in := range o.w.instances {
		status, text := in.ask(http.MethodGet, "/rate_limit/zones/"+zone+"/key?part="+key)
		if status == 0 {
			continue
		}
		var k cli.Key
		if err := json.Unmarshal([]byte(text), &k); err != nil || len(k.Rules) == 0 {
			return 0, "", fmt.Errorf("%d %s: %w", status, text, err)
		}
		return limit - k.Rules[0].Remaining, k.Mode, nil
	}
	return 0, "", fmt.Errorf("no instance runs")
}

// rest checks that nothing is left over.
func (o *oracle) rest() {
	for _, in := range o.w.instances {
		status, text := in.ask(http.MethodGet, "/rate_limit/zones")
		if status == 0 {
			continue
		}
		var z cli.Zones
		if err := json.Unmarshal([]byte(text), &z); err != nil {
			o.violate("the admin API answers", fmt.Sprintf("%d %s", status, text))
			continue
		}
		o.mu.Lock()
		for _, s := range z.Stores {
			o.checked["agree"]++
			id := fmt.Sprint(in.addressNow(), " ", s.Name)
			if down := o.toldDown(id); !s.Up || len(down) > 0 {
				o.violateLocked("after a quiet minute all is as before", fmt.Sprintf("%s: up %v, told down %v, mode %s", id, s.Up, down, s.Mode), nil)
			}
			if n := o.lives[len(o.lives)-1].n; s.Instances != int64(n) {
				o.violateLocked("the live instances are counted", fmt.Sprintf("%s: %d, want %d", id, s.Instances, n), nil)
			}
		}
		o.mu.Unlock()
	}
	for _, s := range o.w.redis.masters() {
		for name, ttl := range s.TTLs() {
			if ttl < 0 && name != "rules" {
				o.violate("every key has a time to live", name)
			}
		}
	}
}

// toldDown returns the nodes of a store of a process that were last told to be down. o.mu is
// held.
func (o *oracle) toldDown(id string) (down []string) {
	for what, up := range o.up {
		if !up && (what == id || strings.HasPrefix(what, id+" ")) {
			down = append(down, what)
		}
	}
	return down
}

// timelineAdd adds a line.
func (w *world) timelineAdd(at time.Duration, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timeline = append(w.timeline, line{at, text})
}
