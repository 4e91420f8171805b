package simulation

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// A rule with block that denies a key by its own verdict denies it until the block ends, on
// all instances. What is checked here knows of a block only by denials and their Retry-After.

// reset is a reset of a key that was answered to have forgotten it everywhere.
type reset struct {
	site     int
	key      string
	from, to time.Duration
}

// wasReset notes that a key was reset since a time.
func (o *oracle) wasReset(site int, key string, from time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.resets = append(o.resets, reset{site, key, from, o.w.now()})
}

// blocks checks the blocks of a key. o.mu is held.
func (o *oracle) blocks(list []*request) {
	one := &o.w.plan.setup.sites[list[0].site]
	if one.Kind != blocking {
		return
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *request) int { return cmp.Compare(a.start, b.start) })
	o.blocked(&one.Rules[0], list)
	for i := range o.resets {
		if x := &o.resets[i]; x.site == list[0].site && x.key == list[0].key {
			o.unblocked(&one.Rules[0], x, list)
		}
	}
}

// longestBlock is the longest that a denial by a rule can block: a rule denies for two full
// windows at most.
func longestBlock(r *rule) time.Duration {
	return max(r.Block, 2*r.Window*time.Duration(max(1, r.burst()/r.Limit)))
}

// blocked checks that a key is denied while it is blocked. list is in the order of arrival.
func (o *oracle) blocked(r *rule, list []*request) {
	site, key := list[0].site, list[0].key
	possible := time.Duration(0) // until when a block may last that the denials so far have started
	for i, d := range list {
		if d.admitted || d.lost || d.answer != http.StatusTooManyRequests {
			if !d.admitted { // whether it has started a block is not known
				possible = max(possible, d.decided+longestBlock(r))
			}
			continue
		}
		// It is blocked for a time that Retry-After rounds up.
		end := d.start + time.Duration(d.retry-1)*time.Second
		calm := !o.disturbed(d.start-recovery, d.end, site, key)
		if d.start > possible && !o.disturbed(d.start-longestBlock(r)-recovery, d.end, site, key) {
			end = max(end, d.start+r.Block) // it has started the block
		}
		possible = max(possible, d.decided+time.Duration(d.retry)*time.Second)
		if !calm {
			possible = max(possible, d.decided+longestBlock(r))
			continue
		}
		o.denies(r, d, end, list[i+1:])
	}
}

// denies checks that a key is denied from a denial on until the end of its block: by all
// instances while nothing happens, and by those that know of the block whatever happens to
// Redis, except for steps of its clock, and for a reset before, by which what is lost stays lost. Without Redis, an
// instance knows its clock to a round trip.
// later are the requests that arrived later.
func (o *oracle) denies(r *rule, d *request, end time.Duration, later []*request) {
	marked := len(o.touches(d.start-2*longestBlock(r)-recovery, d.end, func(s *span) bool { return s.key == d.key && s.site == d.site })) > 0
	told := map[string]time.Duration{d.process: d.decided}
	for _, q := range later {
		if q.start >= end {
			return
		}
		if q.lost || q.start < d.decided || q.decided >= end {
			continue
		}
		calm := !o.disturbed(d.start-recovery, q.end, q.site, q.key)
		at, knows := told[q.process]
		o.checked["block"]++
		switch {
		case !q.admitted && calm:
			if !knows && q.answer == http.StatusTooManyRequests {
				told[q.process] = q.decided
			}
		case !q.admitted:
		case calm:
			o.violateLocked("a blocked key is denied", fmt.Sprintf("it was admitted, though it was denied %v before for %d s", q.decided-d.decided, d.retry), q)
			return
		case knows && q.start > at && !marked && q.decided < end-o.w.plan.setup.way.longest() && len(o.touches(d.start-recovery, q.end, func(s *span) bool {
			return s.stepped || s.what == "wrong-type" || s.concerns(q.site, q.key) // a block may lie in a key that others wrote
		})) == 0:
			o.violateLocked("an instance that knows of a block denies", fmt.Sprintf("it was admitted, though %s was denied %v before for %d s", d.instance, q.decided-d.decided, d.retry), q)
			return
		}
	}
}

// spread is the longest that a reset takes to be known to all instances: a denial is
// remembered for a second at most.
const spread = 1100 * time.Millisecond

// unblocked checks that a reset has ended a block: requests are admitted until the limit is
// used up again. list is in the order of arrival.
func (o *oracle) unblocked(r *rule, x *reset, list []*request) {
	for _, q := range list {
		if q.decided < x.from {
			continue
		}
		if len(o.touches(x.from-4*recovery, q.end, func(s *span) bool {
			return s.disturbs() || s.concerns(q.site, q.key) && (s.what != "reset" || s.from < x.from || s.from > x.to)
		})) > 0 {
			return
		}
		used, most := int64(0), q.cost // most: a denial of it starts another block
		for _, p := range list {
			switch {
			case p == q || p.decided < x.from || p.start > q.decided:
			case p.admitted:
				used += p.cost
			default:
				most = max(most, p.cost)
			}
		}
		if used+most > r.capacity() {
			return
		}
		o.checked["block ended by a reset"]++
		if !q.admitted && !q.lost && q.cancel == 0 && q.start > x.to+spread {
			o.violateLocked("a reset ends a block", fmt.Sprintf("it is denied %v after the reset", q.start-x.to), q)
			return
		}
	}
}

// capacity is the cost that an unused rule admits at once.
func (r *rule) capacity() int64 {
	switch r.Algorithm {
	case "gcra", "token_bucket", "leaky_bucket":
		return r.burst()
	}
	return r.Limit
}

// disturbed says whether something has happened that weakens what is promised of a key.
func (o *oracle) disturbed(from, to time.Duration, site int, key string) bool {
	return len(o.touches(from, to, func(s *span) bool { return s.disturbs() || s.concerns(site, key) })) > 0
}

// disturbs says whether the span weakens what is promised of all keys.
func (s *span) disturbs() bool { return s.away || s.loses || s.stepped }

// concerns says whether the span is a change of a site's rules or a reset of a key.
func (s *span) concerns(site int, key string) bool {
	return s.site == site && (s.key == "" || s.key == key)
}
