package limiter

import (
	"context"
	"sync"
	"time"

	"github.com/dianalimiter/diana/config"
)

// underway are the admitted requests of a limiter whose responses are yet to say what is charged.
type underway struct {
	mu    sync.Mutex
	first *request
}

// openCharge is what a request that is under way shares with [Limiter.SettleCut].
type openCharge struct {
	prev, next *request // in underway

	writer  *writer
	mu      sync.Mutex // held while the response says something, and while the request is finished
	settled bool       // the request was finished while it was under way
}

func (c *openCharge) lock() {
	if c != nil {
		c.mu.Lock()
	}
}

func (c *openCharge) unlock() {
	if c != nil {
		c.mu.Unlock()
	}
}

func (u *underway) add(q *request) {
	u.mu.Lock()
	if q.charging.next = u.first; u.first != nil {
		u.first.charging.prev = q
	}
	u.first = q
	u.mu.Unlock()
}

// remove removes a request. It waits for its settlement.
func (u *underway) remove(q *request) (settled bool) {
	u.mu.Lock()
	if c := &q.charging; c.prev != nil {
		c.prev.charging.next = c.next
	} else {
		u.first = c.next
	}
	if c := &q.charging; c.next != nil {
		c.next.charging.prev = c.prev
	}
	q.charging.prev, q.charging.next = nil, nil
	u.mu.Unlock()
	settled, q.charging.settled = q.charging.settled, false
	return settled
}

// wasSettled ends that a request is under way, and reports whether it was settled meanwhile.
func (q *request) wasSettled(rw *writer) bool { return rw.charging != nil && q.l.underway.remove(q) }

// follow makes another writer of the response note what the request is charged by.
func (c *openCharge) follow(rw *writer) {
	if rw.charging != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writer = rw
	}
}

// lastSettlements is how long the end of a process waits for the charges of requests that it cuts.
const lastSettlements = 5 * time.Second

// SettleCut charges the requests that are under way, as those of clients that leave now: the process ends, and
// their responses with it. It is called when the servers' grace period is over.
func (l *Limiter) SettleCut() {
	ctx, cancel := context.WithTimeout(context.Background(), lastSettlements)
	defer cancel()
	l.underway.mu.Lock() // so that no request is released meanwhile
	defer l.underway.mu.Unlock()
	places := make(chan struct{}, 16)
	var all sync.WaitGroup
	for q := l.underway.first; q != nil && ctx.Err() == nil; q = q.charging.next {
		places <- struct{}{}
		all.Go(func() {
			q.settleCut(ctx)
			<-places
		})
	}
	all.Wait()
}

// settleCut charges a request that is under way.
func (q *request) settleCut(ctx context.Context) {
	q.charging.mu.Lock()
	defer q.charging.mu.Unlock()
	rw := q.charging.writer
	end := ending{Response: config.Response{Status: rw.status, Written: rw.written, End: config.Left}, body: rw.measured}
	if rw.status == 0 {
		end.End = config.Gone
	}
	rw.measured.end(false)
	for i := range q.zones {
		z := &q.zones[i]
		if z.rules == nil || !z.rules.Charged {
			continue
		}
		response := end.of(i)
		charge, _ := z.zone.Config.Charge.Settlement(q.r, z.rules.Cost, &response)
		z.zone.finish(ctx, z.rules, charge)
	}
	q.charging.settled = true
}
