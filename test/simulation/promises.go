package simulation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/cli"
)

// finish checks what can be checked when all is quiet.
func (o *oracle) finish() {
	o.mu.Lock()
	byKey := make(map[string][]*request)
	for _, q := range o.requests {
		id := fmt.Sprintf("%03d %s", q.site, q.key)
		byKey[id] = append(byKey[id], q)
	}
	o.lates()
	ids := names(byKey)
	for _, id := range ids {
		slices.SortStableFunc(byKey[id], func(a, b *request) int { return int(a.start - b.start) })
		o.bounds(byKey[id])
		o.same(byKey[id])
		o.free(byKey[id])
		o.denied(byKey[id])
		o.blocks(byKey[id])
	}
	o.mu.Unlock()
	for _, id := range ids {
		o.charges(byKey[id])
	}
	o.toldLacks()
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
			if q.counts() && q.answered > 0 {
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
	all := chargesOf(one, slices.DeleteFunc(slices.Clone(list), func(q *request) bool { return q.lost }))
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
			if limit, why := o.allowed(i, n, list, all, from, from+window); limit >= 0 && sum > limit {
				o.violateLocked("bound", fmt.Sprintf("site %d (%s) key %s rule %+v: %d admitted in the window from %v, %d allowed (%s)",
					i, one.Name, list[0].key, one.Rules[n], sum, from, limit, why), all[last].q)
				return
			}
		}
	}
}

// allowed returns what a window may admit. -1: anything.
func (o *oracle) allowed(site, n int, list []*request, all []charge, from, to time.Duration) (limit int64, why string) {
	one, key := &o.w.plan.setup.sites[site], list[0].key
	shares := int64(o.shares(from, to))
	var most, alone, coarse int64
	losses := from // from when on a loss matters
	if one.Store == "leased" {
		losses -= o.w.plan.setup.leases // what was leased before the loss, and is spent now, others were not told of
	}
	for _, rules := range o.limits[site] {
		r := rules[n]
		if r.Algorithm == "fixed_window" { // what is put back may have a window begin, and so end, earlier
			losses = from - swept
		}
		most, coarse = max(most, r.bound(1, one.MaxCost)), max(coarse, r.coarse())
		alone = max(alone, int64(len(o.w.instances))*r.bound(shares, one.MaxCost))
	}
	limit = most
	reasons := []string{fmt.Sprintf("bound %d", most)}
	if away := o.touches(from, to, one.isAway); len(away) > 0 {
		if one.Kind == allowing || o.uncounted(site, away) {
			return -1, ""
		}
		limit += alone
		reasons = append(reasons, fmt.Sprintf("alone %d", alone))
	}
	weaker := slices.Concat(o.touches(losses, to, isLoss), o.touches(from, to, func(s *span) bool {
		return !s.loses && (s.stepped || s.what != byList && s.site == site && (s.key == "" || s.key == key))
	}))
	onlyLosses := len(o.touches(from-recovery, to, func(s *span) bool { return s.away || s.stepped || s.ends || s.site == site })) == 0
	for _, s := range weaker {
		more := most
		if onlyLosses {
			if m := o.untold(one, list, all, s, to-from); m >= 0 {
				more = min(more, m+coarse)
			}
		}
		limit += more
		reasons = append(reasons, fmt.Sprintf("%s %d", s.what, more))
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
	if !one.Kind.summed() {
		return
	}
	o.mu.Lock()
	least, most := o.charged(one, list)
	if resets := o.touches(0, o.w.now(), func(s *span) bool { return s.site == i && (s.key == key || s.what == byPrefix) }); len(resets) > 0 {
		last := resets[len(resets)-1]
		since, away := last.from, o.touches(last.from-recovery, last.to+recovery, isAway)
		for _, s := range away { // an instance may owe what it has admitted alone
			since = min(since, s.from-recovery)
		}
		if last.what == "reset" && !last.done || len(away) > 0 && len(o.touches(last.from-recovery, o.w.now(), isLoss)) > 0 {
			o.mu.Unlock()
			return
		}
		list = slices.DeleteFunc(slices.Clone(list), func(q *request) bool { return q.end < since })
		_, most = o.charged(one, list)
		if least = 0; last.what == byPrefix { // what began under it is charged
			least, _ = o.charged(one, slices.DeleteFunc(slices.Clone(list), func(q *request) bool { return q.start <= last.to }))
		}
	}
	o.mu.Unlock()
	if len(list) == 0 {
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
	o.lacks(i, list, used)
	o.w.timelineAdd(o.w.now(), fmt.Sprintf("%s %s: Redis has %d charged, want %d to %d", one.Name, key, used, least, most))
	if used < least || used > most {
		o.violateLocked("each admitted cost is charged once", fmt.Sprintf("%s %s (%s): Redis has %d charged, want %d to %d", one.Name, key, one.Rules[0].Algorithm, used, least, most), list[len(list)-1])
	}
}

// charged returns what Redis must have been charged, and what it may have been.
func (o *oracle) charged(one *site, list []*request) (least, most int64) {
	ended := len(o.touches(0, o.w.now(), isEnd)) > 0
	lost := o.touches(0, o.w.now(), isLoss)
	for _, q := range list {
		known, cost := one.costs(q)
		sure := q.admitted && !q.lost && o.reaches(one, q)
		for _, s := range lost {
			sure = sure && (q.end < s.from-recovery && o.restored(s, q, list) || q.start > s.to+recovery)
		}
		away := len(o.touches(q.start, q.end, isAway)) > 0
		if ended && len(lost) > 0 || away && o.replaced(q) {
			sure = false // what only the instance knew is gone with it
		}
		if sure {
			least += known
		}
		if q.admitted || away && !o.tooLate(q) || q.cancel > 0 || o.unanswered(q) {
			most += cost
		}
		if q.admitted && (one.Kind == tally || one.Kind == held) && o.outlasted(q) {
			most += max(q.cost, cost)
		}
	}
	// What an instance knew and what it owes are told apart by their times.
	slack := int64(0)
	if len(o.touches(0, o.w.now(), isStep)) > 0 {
		slack = int64(len(o.touches(0, o.w.now(), isAway)) * len(o.w.instances))
	}
	return max(0, least-slack), most + slack
}

// costs returns what a request is charged at least and at most, if it is admitted.
func (one *site) costs(q *request) (least, most int64) {
	least, most = q.cost, q.cost
	switch {
	case one.Kind == settled:
		if most = max(q.cost, q.tokens); !q.panics {
			least = most
		}
	case one.Kind == held && (q.panics || q.cancel > 0): // at least what it held, if it was cut
		least, most = min(q.cost, q.tokens), max(q.cost, q.tokens)
	case one.Kind == held:
		least, most = q.tokens, q.tokens
	case one.Kind == tally && q.panics && !q.left:
		least = 0
	case one.Kind == tally && !q.counts():
		least, most = 0, 0
	}
	return least, most
}

// restored says whether an instance is known to have put back after a loss what a request of the list
// was charged. If Redis only evicts keys, none need notice before it asks for this key again, and
// twice, if it finds what another has charged since.
func (o *oracle) restored(loss *span, q *request, list []*request) bool {
	if loss.what != "evict" {
		return true
	}
	since, asked := loss.to, 0
	for _, p := range list {
		if p.process == q.process && p.start > since && p.asked() && len(o.touches(p.start, p.end, isAway)) == 0 {
			since, asked = p.decided, asked+1
		}
	}
	return asked >= 2
}

// reaches says whether what a request was charged is in Redis in the end: it is known to be
// if Redis has answered, and if an outage was without any answer, none before it had the instance
// charge in it what it had admitted alone, and no other followed before it could.
func (o *oracle) reaches(one *site, q *request) bool {
	if q.decided-q.start >= o.w.plan.setup.way.timeout && len(o.touches(q.end, q.end+recovery, func(s *span) bool { return s.away && !s.answers })) > 0 {
		return false // what it owes since its call was late may have been under way when that began
	}
	if one.Kind == tally || one.Kind == held { // a report can be repeated, a debt cannot
		return !o.unknown(q) && len(o.touches(q.start, q.end+30*time.Second, func(s *span) bool { return s.isFault() && o.lasts(s) > 10*time.Second })) == 0
	}
	meanwhile, until := o.touches(q.start, q.end, isAway), q.end
	for _, s := range meanwhile {
		until = max(until, s.to+recovery)
	}
	mute := o.touches(q.start, until, func(s *span) bool { return s.away && !s.answers })
	switch {
	case len(meanwhile) == 0 || len(mute) == 0:
		return true
	case len(mute) > 1 || !mute[0].whole || meanwhile[0] != mute[0]:
		return false
	}
	return q.decided == q.start && q.end == q.answered
}

// unanswered says whether a request was denied because Redis did not answer in time, as one that is far sometimes does not:
// it may have charged the request all the same.
func (o *oracle) unanswered(q *request) bool {
	return q.answer == http.StatusServiceUnavailable && q.decided-q.start >= o.w.plan.setup.way.timeout
}

// tooLate says whether Redis cannot have executed the call of a request before its deadline,
// because it was stopped.
func (o *oracle) tooLate(q *request) bool {
	for _, s := range o.touches(q.start, q.end, isAway) {
		if s.what == "pause" && !s.open && q.start > s.from && q.decided < s.to-o.w.plan.setup.way.timeout && len(o.touches(0, q.end, isStep)) == 0 {
			return true
		}
	}
	return false
}

// unknown says whether a request may have been charged by a debt whose outcome is unknown: its
// instance took Redis for back while a fault lasted, or just before one, or Redis answered the check, and then the
// debt, as if they had failed: until most checks do, the instance goes on to ask. A debt whose outcome is not known is
// not sent again.
func (o *oracle) unknown(q *request) bool {
	for _, s := range o.spans {
		if s.feigns && q.start >= s.from && (s.open || q.start <= s.to) {
			return true
		}
	}
	for _, c := range o.comebacks {
		if q.instance != c.instance || q.end < c.went-recovery || q.start > c.at+recovery {
			continue
		}
		for _, s := range o.spans {
			if s.isFault() && s.from <= c.at+recovery && (s.open || s.to >= c.at) {
				return true
			}
		}
	}
	return false
}

// outlasted says whether a fault began while a request was answered, and lasted until Redis forgot the instance: others may
// be charged what the request held, in addition to the debt for its response.
func (o *oracle) outlasted(q *request) bool {
	return len(o.touches(q.start, q.end, func(s *span) bool { return s.isFault() && s.from >= q.start && o.lasts(s) > lapse })) > 0
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
		var k limiter.Key
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
		o.marks(in)
	}
	for _, s := range o.w.redis.masters() {
		for name, ttl := range s.TTLs() {
			if ttl < 0 && name != "rules" {
				o.violate("every key has a time to live", name)
			}
		}
	}
}

// marks checks that what an instance shows of its changes of mode is each of them once.
func (o *oracle) marks(in *instance) {
	status, text := in.ask(http.MethodGet, "/rate_limit/live?once")
	var m cli.Live
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		o.violate("the admin API answers", fmt.Sprintf("%d %s", status, text))
		return
	}
	last := make(map[string]string) // by store and node
	for _, k := range m.Marks {
		if k.Kind != history.MarkUp && k.Kind != history.MarkDown {
			continue
		}
		o.count("marks")
		id := strings.TrimSpace(k.Name + " " + k.Text)
		if last[id] == k.Kind {
			o.violate("a change of mode is told once", fmt.Sprintf("%s %s: %s follows %s on the page, of %v", in.addressNow(), id, k.Kind, k.Kind, k.At))
			return
		}
		last[id] = k.Kind
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
