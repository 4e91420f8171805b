package simulation

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// swept is the longest until instances have put back what they know of all keys after Redis
// lost its memory. They do so once in sweepsEvery.
const (
	swept       = 5 * time.Second
	sweepsEvery = 65 * time.Second
)

// remembered is the longest that an instance goes on denying what Redis denied before it
// forgot, or its clock was set, or before all instances had put back what they know: a
// fixed_window may begin earlier then.
const remembered = 4 * time.Second

// asked says whether a request may have been decided by Redis: a denial without a call
// takes no time.
func (q *request) asked() bool { return q.decided > q.start }

// untold returns what a loss of memory allows a key beyond its bound: what the first instance
// to ask for it had not been told, and one request of each instance. list is in the order of
// start. It returns -1 if that is not known. o.mu is held.
func (o *oracle) untold(one *site, list []*request, all []charge, s *span, window time.Duration) int64 {
	if one.Kind != bounded && one.Kind != denying && one.Kind != allowing || s.what != "flush" && s.what != "evict" {
		return -1
	}
	first := slices.IndexFunc(list, func(q *request) bool { return q.decided >= s.from && q.asked() })
	if first < 0 {
		return 0
	}
	most := int64(0)
	until := list[first].decided
	for _, q := range list[first:] {
		if q.start > until {
			break
		}
		if q.asked() {
			most = max(most, o.unknownTo(q.process, list, all, s.from, window))
		}
	}
	if s.what == "flush" && list[first].start > s.from+swept && len(o.touches(s.from-sweepsEvery, s.from, isLoss)) == 1 {
		for _, in := range o.w.instances {
			if p := in.addressNow(); in.since < s.from-swept && !in.isDead(p) {
				most = min(most, o.unknownTo(p, list, all, s.from, window))
			}
		}
	}
	asked := make(map[string]bool)
	for _, q := range list[first:] {
		asked[q.process] = true
	}
	return most + int64(len(asked))*one.MaxCost
}

// unknownTo returns what requests were charged of a key before an instant that a process had not been
// told of then.
func (o *oracle) unknownTo(process string, list []*request, all []charge, at, window time.Duration) (sum int64) {
	told := time.Duration(-1)
	for _, q := range list {
		if q.process == process && q.decided < at && q.asked() {
			told = max(told, q.start)
		}
	}
	for _, c := range all {
		if c.to > at-window && c.from <= at && c.to > told && (c.q.process != process || c.q.decided >= at) {
			sum += c.cost
		}
	}
	return sum
}

// alone says whether a request may have been decided without Redis. o.mu is held.
func (o *oracle) alone(q *request) bool {
	return q.decided-q.start >= o.w.plan.setup.way.timeout || len(o.touches(q.start, q.decided, isAway)) > 0
}

// denied checks that a client that was denied is denied until its time has come: by the same
// instance also without Redis. o.mu is held.
func (o *oracle) denied(list []*request) {
	one := &o.w.plan.setup.sites[list[0].site]
	if one.Kind != bounded {
		return
	}
	// Shares of a burst are rounded, and of a log only how much is used is known.
	whole := !slices.ContainsFunc(one.Rules, func(r rule) bool { return r.Burst > 0 || r.Algorithm == "sliding_log" })
	var window time.Duration // for as long a repaired state may deny longer than what an instance knows, and puts back later
	for _, r := range one.Rules {
		window = max(window, r.Window)
	}
	for i, p := range list {
		if p.answer != http.StatusTooManyRequests || p.admitted || p.lost || p.retry < 2 || p.cost > 1 || o.alone(p) || len(o.touches(p.start-window, p.start, isStep)) > 0 {
			continue
		}
		until := p.start + time.Duration(p.retry-1)*time.Second // Redis may have decided long before its reply
		if !p.asked() {
			until -= 2 * o.w.plan.setup.way.timeout // the wait is longer than Redis' by as long as two calls take
		}
		for _, q := range list[i:] {
			if q.start > until {
				break
			}
			if q.start <= p.decided || q.decided >= until || q.lost || len(o.touches(p.start-remembered, q.decided, func(s *span) bool {
				return s.loses || s.stepped || s.site == q.site && (s.key == "" || s.key == q.key)
			})) > 0 {
				continue
			}
			if away := o.alone(q) || len(o.touches(p.start, q.decided, isAway)) > 0; away && (!whole || p.process != q.process || len(o.touches(0, q.decided, isStep)) > 0) {
				continue // or a store that a reload has begun does not know by how much Redis' clock is off
			}
			o.checked["denied"]++
			if q.admitted {
				o.violateLocked("a client that was denied is still denied", fmt.Sprintf("admitted %v after it was told to wait for %d s", q.decided-p.decided, p.retry), q)
				return
			}
		}
	}
}
