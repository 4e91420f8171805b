package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/internal/stores"
)

// Permits in Redis expire unless they are renewed.
const (
	renewEvery = 10 * time.Second
	drainEvery = 250 * time.Millisecond
	lapse      = 30 * time.Second // the script's LAPSE
	maxLate    = 10_000           // releases that wait for Redis
)

// permits are what this instance's requests hold in Redis.
type permits struct {
	conn *conn
	last atomic.Uint64

	mu   sync.Mutex
	held map[uint64]string // the key in Redis, by the permit's ID
	late []lateRelease     // to be sent again
}

// release is the operation that ends a zone's hold, and its keys.
type release struct {
	tag  stores.Key
	keys []string
	op   []byte
}

type lateRelease struct {
	release
	until time.Time
}

// finishOf returns the operation that releases a zone's permit and charges cost
// charge.
func finishOf(prefix string, z *stores.ZoneCheck, charge int64) release {
	op := byte(opFinish)
	if z.KeepsPermit(charge) {
		op = opKeep
	}
	keys := namesOf(prefix, z)
	return release{z.Tag, keys, appendZone([]byte{op, byte(len(keys))}, z, charge)}
}

// assign gives each zone that takes a permit its ID.
func (p *permits) assign(check *stores.Check) {
	for i := range check.Zones {
		z := &check.Zones[i]
		if permit, _ := z.Holds(); permit && !check.Peek {
			z.Permit.ID = p.conn.instance ^ p.last.Add(1)
		}
	}
}

// record remembers the permits that a check took, so that they are renewed. If
// it is unknown whether it took them, they are released.
func (p *permits) record(check *stores.Check, err error) {
	for i := range check.Zones {
		z := &check.Zones[i]
		if z.Permit.ID == 0 {
			continue
		}
		switch {
		case err != nil:
			p.releaseLater(finishOf(p.conn.o.Prefix, z, 0))
			z.Permit = stores.Permit{}
		case z.Charged:
			z.Permit.Taken, z.Permit.Mode = true, stores.ModeShared
			keys := namesOf(p.conn.o.Prefix, z)
			p.mu.Lock()
			p.held[z.Permit.ID] = keys[1]
			p.mu.Unlock()
		}
	}
}

// release releases a zone's permit. The script recognizes a permit that was
// released before, so that this can be retried.
func (p *permits) release(ctx context.Context, z *stores.ZoneCheck, charge int64) {
	if !z.KeepsPermit(charge) {
		p.mu.Lock()
		delete(p.held, z.Permit.ID)
		p.mu.Unlock()
	}
	f := finishOf(p.conn.o.Prefix, z, charge)
	if err := p.finish(ctx, f); err != nil {
		if !errors.Is(err, errOpen) {
			p.conn.fail(err)
		}
		p.releaseLater(f)
	}
}

// finish sends a release.
func (p *permits) finish(ctx context.Context, f release) error {
	if !p.conn.usable(f.tag) {
		return errOpen
	}
	q := newCall(p.conn.end(ctx), f.tag)
	q.add(f.keys, f.op)
	_, _, err := p.conn.send(q)
	return err
}

func (p *permits) releaseLater(f release) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.late) < maxLate {
		p.late = append(p.late, lateRelease{f, time.Now().Add(lapse)})
	}
}

// any says whether permits are held, or have to be released.
func (p *permits) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)+len(p.late) > 0
}

// retry sends the late releases, except those whose permits have expired.
func (p *permits) retry(ctx context.Context) {
	p.mu.Lock()
	late := p.late
	p.late = nil
	p.mu.Unlock()
	for _, l := range late {
		if time.Now().After(l.until) {
			continue
		}
		if err := p.finish(ctx, l.release); err != nil { // the next may lie on another node
			p.mu.Lock()
			p.late = append(p.late, l)
			p.mu.Unlock()
		}
	}
}

// renew postpones the expiry of the permits that are held, key by key.
func (p *permits) renew(ctx context.Context) {
	ops := make(map[string][]byte)
	p.mu.Lock()
	for id, key := range p.held {
		op := ops[key]
		if op == nil {
			op = []byte{opRenew, 1, 0, 0, 0, 0}
		}
		binary.LittleEndian.PutUint32(op[2:], binary.LittleEndian.Uint32(op[2:])+1)
		ops[key] = binary.LittleEndian.AppendUint64(op, id)
	}
	p.mu.Unlock()
	for key, op := range ops {
		call, cancel := p.conn.background(ctx)
		err := p.conn.call(call, []string{key}, op)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil { // the next may lie on another node
			p.conn.fail(err)
		}
	}
}

// drain renews the permits of requests that outlive the store, as a WebSocket
// does a reload that changes the store's options. When the last is released, it
// closes the connections.
func (p *permits) drain() {
	ctx := context.Background()
	renewed := time.Time{}
	for p.any() {
		p.conn.nodes.tryAgain() // nothing else uses the connections
		p.retry(ctx)
		if time.Since(renewed) >= renewEvery {
			renewed = time.Now()
			p.renew(ctx)
		}
		time.Sleep(drainEvery)
	}
	_ = p.conn.client.Close()
}
