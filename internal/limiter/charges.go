package limiter

// chargesLater reports whether finish must be called after the response, to charge it or
// to release permits.
func (q *request) chargesLater() bool {
	if q.immediate != nil {
		return false
	}
	for i := range q.zones {
		z := &q.zones[i]
		if z.rules < 0 || !q.check.Zones[z.rules].Charged {
			continue
		}
		if z.zone.Config.Charge.AfterResponse() || z.zone.InFlight > 0 {
			return true
		}
	}
	return false
}

// needsStatus reports whether it matters to a zone with which status or body the request is
// answered, or whether the client leaves before.
func (q *request) needsStatus() bool {
	for i := range q.zones {
		z := q.zones[i].zone
		if charge := &z.Config.Charge; charge.HoldsCost() || z.Linger > 0 || charge.Settle.Measures() {
			return true
		}
	}
	return false
}

// finish releases the permits of the request and makes the charges that depend on its response.
func (q *request) finish(told *ending) {
	for i := range q.zones {
		z := &q.zones[i]
		if z.rules < 0 || !q.check.Zones[z.rules].Charged {
			continue
		}
		c := &q.check.Zones[z.rules]
		response := told.of(i)
		charge := z.zone.Config.Charge.Settlement(q.r, c.Cost, &response)
		if response.Gone && c.Permit.Taken && z.zone.linger(c, charge) {
			continue
		}
		z.zone.store.Finish(q.r.Context(), c, charge)
		z.zone.common.queue.freed(c.Key)
	}
}
