package simulation

import "fmt"

// lack is cost that the requests of a site were charged, and Redis has not.
type lack struct {
	cost  int64
	about *request // the last of them
}

// lacks notes what Redis was not charged of what the requests of a key were admitted with, whatever the reason. If
// Redis has forgotten something, or was told to, nobody knows of how much. o.mu is held.
func (o *oracle) lacks(site int, list []*request, used int64) {
	forgets := func(s *span) bool { return s.loses || s.stepped || s.site == site && s.what != byList }
	if len(o.touches(0, o.w.now(), forgets)) > 0 {
		return
	}
	o.checked["uncharged"]++
	one := &o.w.plan.setup.sites[site]
	for _, q := range list {
		if q.admitted && !q.lost && !o.replaced(q) { // what a process owes when it ends is lost
			least, _ := one.costs(q)
			used -= least
		}
	}
	if used < 0 {
		l := o.lack[site]
		o.lack[site] = lack{l.cost - used, list[len(list)-1]}
	}
}

// toldLacks checks that the instances count what Redis was not charged: they may lose a charge, but not without a word.
func (o *oracle) toldLacks() {
	for site, l := range o.lack {
		zone, told := o.w.plan.setup.sites[site].Name, int64(0)
		for _, in := range o.w.instances {
			told += in.uncharged(zone)
		}
		if l.cost > told {
			o.mu.Lock()
			o.violateLocked("what is not charged is counted", fmt.Sprintf("%s: Redis was not charged %d, and the instances count %d as uncharged", zone, l.cost, told), l.about)
			o.mu.Unlock()
		}
	}
}

// uncharged returns the cost of a zone that the process of an instance counts as not charged.
func (in *instance) uncharged(zone string) (cost int64) {
	c, ended := in.current()
	if c == nil {
		return 0
	}
	defer ended()
	families, err := c.ctx.GetMetricsRegistry().Gather()
	if err != nil {
		return 0
	}
	for _, f := range families {
		if f.GetName() != "caddy_rate_limit_uncharged_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "zone" && l.GetValue() == zone {
					cost += int64(m.GetCounter().GetValue())
				}
			}
		}
	}
	return cost
}
