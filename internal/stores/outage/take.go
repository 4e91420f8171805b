package outage

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// taker takes what keys have to hand over.
type taker struct {
	o     Options
	redis Redis
	share func(*stores.Counter) []algorithms.Rule
}

// take takes what a zone's key has to hand over. With told it hands over its snapshot in any case. more says that
// the key still owes.
func (d *taker) take(n *memory.Snapshots, z *stores.ZoneCheck, now memory.Instant, told bool) (h Handover, more bool) {
	z.Rules = d.share(z.Counter)
	h = Handover{Zone: stores.ZoneCheck{Counter: z.Counter, Subject: z.Subject}, Tolerance: now.Tolerance, snapshots: n}
	h.Handover, more = n.Take(z, now, told)
	return h, more
}

// include adds what zone i of a check has to hand over, if it has anything.
func include(all []Handover, h Handover, i int) []Handover {
	if h.empty() {
		return all
	}
	h.At = i
	return append(all, h)
}
