package redis

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dianalimiter/diana/stores"
)

// Renewals go beside the heartbeat, so that many keys or a node that does not answer
// delay neither it nor each other for long.
const (
	reportsPerCall  = 32 // bounds how long a call blocks Redis
	clusterRenewals = 16 // calls at a time, each of one key, as keys lie in different slots
)

// renewals tell Redis of what changed of permits, and renew them.
type renewals struct {
	conn    *conn
	permits *permits
	settle  func(z *stores.ZoneCheck, charge int64, err error) // is called with charges that are not reported any more

	rounds sync.Mutex // held by a round
}

// run makes rounds until ctx ends.
func (r *renewals) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.permits.wake:
		case <-time.After(time.Second):
		}
		r.renew(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryEvery):
		}
	}
}

// renew makes one round: it reports each record once that Redis has to be told of, or
// whose last report is renewEvery old. An error ends one call, not the round.
func (r *renewals) renew(ctx context.Context) {
	r.rounds.Lock() // one round at a time
	defer r.rounds.Unlock()
	defer r.giveUpUnsaid()
	if !r.conn.anyUsable() {
		r.permits.dropLapsed()
		return
	}
	r.permits.beginRound()
	calls, perCall := 1, reportsPerCall
	if r.conn.o.Cluster {
		calls, perCall = clusterRenewals, 1
	}
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			for ctx.Err() == nil {
				some := r.permits.due(perCall)
				if len(some) == 0 {
					return
				}
				for _, same := range some {
					r.report(same)
				}
			}
		})
	}
	all.Wait()
}

// dropLapsed forgets what Redis need not be told of any more.
func (p *permits) dropLapsed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, rec := range p.records {
		p.drop(rec)
	}
}

// giveUpUnsaid settles the charges that are not reported any more without Redis.
func (r *renewals) giveUpUnsaid() {
	list := r.permits.takeUnsaid()
	for i := range list {
		if u := &list[i]; u.charge > 0 {
			r.settle(&u.zone, u.charge, u.err)
		}
	}
}

// takeUnsaid returns the charges that are not reported any more.
func (p *permits) takeUnsaid() (list []unsaid) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, p.unsaid = p.unsaid, nil
	return list
}

// beginRound begins a round of renewals.
func (p *permits) beginRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round++
}

// due returns the next records of a round, at most n, those of a call together. A record whose report failed waits
// for the next round.
func (p *permits) due(n int) [][]*record {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, some := p.clock(), []*record(nil)
	for len(some) < n {
		rec := oldest(&p.late)
		if rec == nil || rec.round == p.round {
			break
		}
		remove(&p.late, &rec.late)
		if p.drop(rec); rec.age != nil && !rec.isKnown() {
			some = p.include(some, rec)
		}
	}
	for len(some) < n {
		rec := oldest(&p.ages)
		if rec == nil || rec.round == p.round || now-rec.at < renewEvery.Microseconds() && rec.at > p.lost.Load() {
			break
		}
		some = p.include(some, rec)
	}
	return byCodes(some)
}

// include adds a record to those that are reported, unless requests that end report it: their
// charges are theirs to make, because a renewal cannot tell what they have used.
func (p *permits) include(some []*record, rec *record) []*record {
	rec.round = p.round
	p.touch(rec, p.clock())
	if rec.ending > 0 {
		rec.repeat(p.number + 1) // the last of them has it reported after all if that was not enough
		return some
	}
	rec.renewing = make(chan struct{})
	return append(some, rec)
}

// byCodes groups records by their third-party algorithms, which one call has in common. permits.mu is held.
func byCodes(some []*record) (same [][]*record) {
	groups := make(map[string][]*record)
	for _, rec := range some {
		codes := prepare(rec.zone.Counter).packed.codes
		groups[codes] = append(groups[codes], rec)
	}
	for _, codes := range slices.Sorted(maps.Keys(groups)) {
		same = append(same, groups[codes])
	}
	return same
}

// report reports records in one call.
func (r *renewals) report(some []*record) {
	q := newCall(time.Now().Add(max(r.conn.o.Timeout, backgroundTimeout)), some[0].zone.Tag)
	r.permits.mu.Lock()
	for _, rec := range some {
		q.reportOf(rec, &r.conn.at(rec.zone.Tag).clock)
	}
	r.permits.mu.Unlock()
	_, _, err := r.conn.send(q)
	if err != nil && !errors.Is(err, errOpen) {
		r.conn.fail(err)
	}
	r.permits.renewed(some, err)
}

// renewed follows the call that reports records.
func (p *permits) renewed(some []*record, err error) {
	again := err != nil && !errors.As(err, new(failedOp)) // otherwise the others were reported
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, rec := range some {
		close(rec.renewing)
		rec.renewing = nil
		if again {
			rec.repeat(p.number + 1)
			p.tellSoon(rec)
		}
	}
}
