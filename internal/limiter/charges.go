package limiter

// chargesLater reports whether something is left to be done after the response: to
// charge what it says, or to give permits back.
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

// countsStatus reports whether a zone wants to know the status of the response.
func (q *request) countsStatus() bool {
	for i := range q.zones {
		if q.zones[i].zone.Config.Charge.Statuses.Set {
			return true
		}
	}
	return false
}

// finish gives back the permits that the request held and charges what its response
// says.
func (q *request) finish(status int) {
	for i := range q.zones {
		z := &q.zones[i]
		if z.rules < 0 || !q.check.Zones[z.rules].Charged {
			continue
		}
		c := &q.check.Zones[z.rules]
		z.zone.store.Finish(q.r.Context(), c, z.zone.Config.Charge.Settlement(q.r, c.Cost, status))
	}
}
