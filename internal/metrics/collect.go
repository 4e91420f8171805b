package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/dianalimiter/diana/stores"
)

// Running is what the metrics show of the running configuration.
type Running struct {
	Zones     map[string]*Exposed // by name
	Stores    []stores.Shared     // the shared ones
	Confirmed time.Time           // when the rule source last confirmed the rules; zero: never
}

// Exposed is what the metrics show of a zone.
type Exposed struct {
	Counters *Counters        // its counters
	Groups   *Groups          // its costs by group; nil: it has no group_by
	Rules    map[string]*Rule // of the rules in force, by label
	Origin   string           // of the rules: config, or the kind of source

	Keys int64 // in its tables

	LimitsFrom bool // whether requests may bring limits
	Settles    bool // whether responses tell costs
	Shared     bool // whether a shared store counts

	Places *PlaceState // nil: the zone has no in_flight adaptive
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(Namespace+"_"+name, help, labels, nil)
}

var (
	decisionsDesc = desc("decisions_total", "Decisions, by zone and outcome.", "zone", "decision")
	nearDesc      = desc("near_limit_total", "Allowed requests that left a rule less than a fifth of its limit or burst.", "zone")
	deniedDesc    = desc("denied_total", "Denied requests, by the zone and rule that denied them, and by why.", "zone", "rule", "cause")
	blocksDesc    = desc("blocks_total", "Blocks of keys, by the zone and rule that started them.", "zone", "rule")
	badCostDesc   = desc("bad_cost_total", "Costs that were not an integer of at least 1 and counted as 1.", "zone")
	badLimitDesc  = desc("bad_limit_total", "Requests without a valid limit, for rules with a limit from the request.", "zone")
	unknownDesc   = desc("unknown_cost_total", "Responses without the cost that settle needs, or that ended before it.", "zone")
	settledDesc   = desc("settled_cost_total", "Cost of requests by their responses, with settle or tokens.", "zone")
	groupsDesc    = desc("group_cost_total", "Cost of requests by their responses, by the values of group_by; other: of groups beyond the first 200. Only for zones with group_by.", "zone", "group")
	fallbackDesc  = desc("fallback_total", "Decisions made without the zone's store, because it was unavailable.", "zone")
	keysDesc      = desc("keys", "Keys kept in this process, by zone; for a zone in Redis, those whose state it knows for an outage.", "zone")
	overflowDesc  = desc("overflow_total", "Charges to counters that several keys share, because the zone is full.", "zone")
	unblockedDesc = desc("unblocked_total", "Denials by a rule with block that did not block, because the zone is full. Only for zones that had such a denial.", "zone")
	rulesInfoDesc = desc("rules_info", "Origin of the rules of a zone: config, or the kind of source (redis, http, file).", "zone", "source")
	rulesAgeDesc  = desc("rules_age_seconds", "Seconds since the rule source last confirmed the rules in force.")

	storeUpDesc   = desc("store_up", "Whether the store is used (1) or unavailable (0).", "store")
	instancesDesc = desc("instances", "Live instances that share the store, as last seen; 0: unknown.", "store")
	enforcedDesc  = desc("enforced_share", "Part of each limit that this instance enforces: 1 while the store is used, also while it still charges the debts of an outage; its share while the store is unavailable and on_failure is local; 0 if nothing is counted.", "store")
	callsDesc     = desc("store_calls_total", "Calls of the script in the store.", "store")
	checksDesc    = desc("store_checks_total", "Checks that were batched into these calls.", "store")
	callTimeDesc  = desc("store_call_seconds_total", "Duration of these calls, seen from this instance.", "store")
	leasesDesc    = desc("leases_total", "Leases of this instance: times that part of a key's limit was charged in advance.", "store")
	grantedDesc   = desc("leased_cost_total", "Cost charged in advance by the leases of this instance.", "store")
	spentDesc     = desc("leased_cost_spent_total", "Part of the cost charged in advance that requests spent; the rest expires.", "store")
)

// Collector collects the metrics of the process and of the running configuration, which the
// function returns.
func (m *Metrics) Collector(running func() Running) prometheus.Collector {
	return &collector{m, running}
}

type collector struct {
	*Metrics
	running func() Running
}

// samples are the metrics of one scrape.
type samples chan<- prometheus.Metric

func (s samples) counter(d *prometheus.Desc, n uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (s samples) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// Describe implements prometheus.Collector. Which series there are depends on the
// configuration.
func (*collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.Seconds.Collect(ch)
	c.RulesErrors.Collect(ch)
	now := c.running()
	if !now.Confirmed.IsZero() {
		samples(ch).gauge(rulesAgeDesc, max(0, time.Since(now.Confirmed).Seconds()))
	}
	for name, z := range now.Zones {
		z.collect(ch, name)
		if z.Shared {
			for _, why := range stores.UnchargedReasons {
				c.Uncharged.WithLabelValues(name, string(why)) // all begin at 0
			}
		}
	}
	c.collectUncharged(ch, now.Zones)
	for _, s := range now.Stores {
		status := s.Status()
		c.collectStore(ch, &status)
	}
}

// collectUncharged collects what was not charged, also of zones that are gone: what they owed ends with them.
func (c *collector) collectUncharged(to samples, zones map[string]*Exposed) {
	all := make(chan prometheus.Metric)
	go func() { c.Uncharged.Collect(all); close(all) }()
	for m := range all {
		var series dto.Metric
		_ = m.Write(&series) // never fails
		// The labels are sorted by name: the second is the zone.
		if z := zones[series.GetLabel()[1].GetValue()]; z != nil && z.Shared || series.GetCounter().GetValue() > 0 {
			to <- m
		}
	}
}

func (z *Exposed) collect(to samples, name string) {
	c := z.Counters
	for o := range numOutcomes {
		to.counter(decisionsDesc, c.Shown(o), name, o.String())
	}
	for label, r := range z.Rules {
		for why := range numCauses {
			if n := r.denied[why].Load(); n > 0 {
				to.counter(deniedDesc, n, name, label, why.String())
			}
		}
		if n := r.blocks.Load(); n > 0 || r.Blocks.Load() {
			to.counter(blocksDesc, n, name, label)
		}
	}
	to.counter(nearDesc, c.Sum(Near), name)
	to.counter(badCostDesc, c.Sum(BadCost), name)
	to.counter(fallbackDesc, c.Sum(Fallback), name)
	if z.LimitsFrom {
		to.counter(badLimitDesc, c.Sum(BadLimit), name)
	}
	if z.Settles {
		to.counter(unknownDesc, c.Sum(UnknownCost), name)
		to.counter(settledDesc, c.Sum(Settled), name)
		z.Groups.collect(to, name)
	}
	z.Places.collect(to, name, c)
	to.gauge(keysDesc, float64(z.Keys), name)
	to.counter(overflowDesc, c.Overflows.Load(), name)
	if n := c.Unblocked.Load(); n > 0 {
		to.counter(unblockedDesc, n, name)
	}
	to.gauge(rulesInfoDesc, 1, name, z.Origin)
}

// collectStore collects the metrics of a store. All its counters begin at 0, because one that
// appears with the value 1 has no rate.
func (c *collector) collectStore(to samples, s *stores.Status) {
	name, up, enforced := s.Name, 1.0, 1.0
	if !s.Up {
		up, enforced = 0, s.Enforced
	}
	to.gauge(storeUpDesc, up, name)
	to.gauge(enforcedDesc, enforced, name)
	to.gauge(instancesDesc, float64(s.Instances), name)
	to.counter(callsDesc, s.Calls.Calls, name)
	to.counter(checksDesc, s.Calls.Checks, name)
	to <- prometheus.MustNewConstMetric(callTimeDesc, prometheus.CounterValue, s.Calls.Took.Seconds(), name)
	for _, f := range stores.Failures {
		to <- c.StoreErrors.WithLabelValues(name, string(f))
	}
	to <- c.ClockSteps.WithLabelValues(name)
	if s.Leases != nil {
		to.counter(leasesDesc, s.Leases.Times, name)
		to.counter(grantedDesc, s.Leases.Granted, name)
		to.counter(spentDesc, s.Leases.Spent, name)
	}
}
