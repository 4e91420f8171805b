package redis

import (
	"context"
	"errors"

	"github.com/dianalimiter/diana/stores"
)

// Finish implements [stores.Store].
func (s *Store) Finish(ctx context.Context, z *stores.ZoneCheck, charge int64) {
	holds, _ := z.Holds()
	switch {
	case z.Permit.Lease != 0:
		s.leasing.finish(z, charge)
	case z.Permit.Mode == stores.ModeFallback:
		s.fallback.Finish(z, charge)
	case z.Permit.Taken && charge > 0 && !s.conn.usable(z.Tag):
		s.fallback.Settle(z, charge, errOpen)
		s.permits.releaseLater(z)
	case z.Permit.Taken:
		s.release(ctx, z, charge)
	case holds:
		// It was finished before.
	case charge > 0 && z.Charged:
		// It is unknown whether a charge without a reply was made, so it is
		// made once.
		if err := s.chargeOnce(ctx, z, charge); err != nil {
			s.conn.fail(err)
			s.fallback.Settle(z, charge, err)
		}
		s.fallback.Ask(z)
	}
}

// chargeOnce charges a zone that holds no permit.
func (s *Store) chargeOnce(ctx context.Context, z *stores.ZoneCheck, charge int64) error {
	if !s.conn.usable(z.Tag) {
		return errOpen
	}
	q, at := newCall(s.conn.end(ctx), z.Tag), &s.conn.at(z.Tag).clock
	alone := *z
	alone.SeesHeld = false // it is charged whatever is held
	q.peekUsed(s.o.Prefix, z, at)
	of := prepare(z.Counter)
	q.add([]string{string(appendName(nil, s.o.Prefix, z))}, of.appendZone([]byte{opFinish, 1}, &alone, 0, charge, false, at))
	q.needs(&of.packed)
	q.peekUsed(s.o.Prefix, z, at)
	r, now, err := s.conn.send(q)
	if err == nil {
		r.readCharge(z, now)
	}
	return err
}

// release ends what a request holds that Redis admitted, and charges cost charge. If
// Redis cannot be told now, it is told later.
func (s *Store) release(ctx context.Context, z *stores.ZoneCheck, charge int64) {
	s.permits.beginEnd(z, s.conn.end(ctx))
	q := newCall(s.conn.end(ctx), z.Tag)
	rec := s.permits.end(z, charge, q, &s.conn.at(z.Tag).clock)
	if !s.conn.usable(z.Tag) {
		q.release()
	} else if r, now, err := s.conn.send(q); err == nil {
		r.readCharge(z, now)
	} else if !errors.Is(err, errOpen) {
		s.conn.fail(err)
	}
	s.permits.endReported(rec)
}
