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

// countsStatus reports whether a zone has count_status.
func (q *request) countsStatus() bool {
	for i := range q.zones {
		if q.zones[i].zone.Config.Charge.Statuses.Set {
			return true
		}
	}
	return false
}

// finish releases the permits of the request and makes the charges that depend on the
// status of its response.
func (q *request) finish(status int) {
	for i := range q.zones {
		z := &q.zones[i]
		if z.rules < 0 || !q.check.Zones[z.rules].Charged {
			continue
		}
		c := &q.check.Zones[z.rules]
		z.zone.store.Finish(q.r.Context(), c, z.zone.Config.Charge.Settlement(q.r, c.Cost, status))
		z.zone.common.queue.freed(c.Key)
	}
}
