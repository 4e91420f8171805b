package diana

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// What the admin API says of everything. Durations are seconds.

type statusOfAll struct {
	Now    time.Time        `json:"now"`
	Stores []statusOfStore  `json:"stores"`
	Rules  *statusOfRules   `json:"rules,omitempty"` // where rules from outside come from
	Zones  []statusOfZone   `json:"zones"`
	Took   []statusOfTiming `json:"decision_seconds"`
}

type statusOfStore struct {
	Name      string    `json:"name"`
	Up        bool      `json:"up"`
	Mode      string    `json:"mode"` // shared, or what on_failure makes of it: alone, allow, deny
	Since     time.Time `json:"since"`
	OnFailure string    `json:"on_failure"`
	Instances int64     `json:"instances"`
}

type statusOfRules struct {
	Source     string     `json:"source"`
	Since      *time.Time `json:"since,omitempty"`     // they are in force
	Confirmed  *time.Time `json:"confirmed,omitempty"` // when the source was last seen to hold them
	Error      string     `json:"error,omitempty"`
	ErrorSince *time.Time `json:"error_since,omitempty"`
	Unknown    []string   `json:"unknown_zones,omitempty"`
}

type statusOfZone struct {
	Name      string            `json:"name"`
	Store     string            `json:"store"`
	Origin    string            `json:"origin"` // of the rules: config, or the kind of source
	Enabled   bool              `json:"enabled"`
	Shadow    bool              `json:"shadow"`
	Key       []string          `json:"key"`
	Rules     []statusOfRule    `json:"rules"`
	Overrides int               `json:"overrides"`
	InFlight  int64             `json:"in_flight,omitempty"`
	Handlers  int               `json:"handlers"` // that name the zone
	Keys      int64             `json:"keys"`     // kept in this process
	MaxKeys   int64             `json:"max_keys"`
	Decisions map[string]uint64 `json:"decisions"`
	Denied    map[string]uint64 `json:"denied"` // by rule
}

type statusOfRule struct {
	Name      string          `json:"name"`
	Limit     int64           `json:"limit"`
	Window    float64         `json:"window"`
	Algorithm string          `json:"algorithm"`
	Options   json.RawMessage `json:"options,omitempty"`
}

type statusOfTiming struct {
	Store string  `json:"store"`
	Count uint64  `json:"count"`
	Sum   float64 `json:"sum"`
	P50   float64 `json:"p50"` // upper bounds, since the process began
	P99   float64 `json:"p99"`
}

// statusOfAll gathers what there is to say.
func (a *App) statusOfAll() statusOfAll {
	all := statusOfAll{Now: time.Now(), Stores: []statusOfStore{}, Zones: []statusOfZone{}, Rules: a.statusOfRules(), Took: a.timings()}
	for _, s := range a.shared {
		up, since := s.State()
		mode := stores.ModeShared
		if !up {
			mode = s.OnFailure().Mode()
		}
		all.Stores = append(all.Stores, statusOfStore{s.Name(), up, mode.String(), since, s.OnFailure().String(), s.Instances()})
	}
	decisions, denials := a.metrics.byZone(a.metrics.decisions, "decision"), a.metrics.byZone(a.metrics.denied, "rule")
	at := make(map[string]int)
	tables := make(map[*memory.Table]bool)
	for _, h := range a.remote.list() {
		for _, z := range h.zones {
			t := z.terms.Load()
			i, ok := at[z.Name]
			if !ok {
				i = len(all.Zones)
				at[z.Name] = i
				all.Zones = append(all.Zones, h.statusOfZone(z, t))
				all.Zones[i].Decisions, all.Zones[i].Denied = decisions[z.Name], denials[z.Name]
			}
			all.Zones[i].Handlers++
			for _, b := range t.bounds {
				if !tables[b.table] {
					tables[b.table] = true
					all.Zones[i].Keys += b.table.Keys()
				}
			}
		}
	}
	slices.SortFunc(all.Zones, func(a, b statusOfZone) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (a *App) statusOfRules() *statusOfRules {
	st, ok := a.feedStatus()
	if !ok {
		return nil
	}
	r := &statusOfRules{Source: a.remote.feed.name()}
	r.Since, r.Confirmed = optional(st.taken), optional(st.confirmed)
	if st.err != nil {
		r.Error, r.ErrorSince = short(st.err), optional(st.failed)
	}
	a.remote.mu.Lock()
	given := a.remote.given
	a.remote.mu.Unlock()
	r.Unknown = firstFew(a.unknown(given))
	return r
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (h *Handler) statusOfZone(z *zone, t *terms) statusOfZone {
	s := statusOfZone{
		Name: z.Name, Store: h.storeName(z), Origin: h.app.origin(t), Enabled: !t.off, Shadow: t.shadow,
		Key: z.Key, Rules: []statusOfRule{}, Overrides: len(t.list), InFlight: z.InFlight, MaxKeys: h.maxKeys(z),
	}
	if len(s.Key) == 0 {
		s.Key = []string{"{client_ip}"}
	}
	for i, alg := range t.rules.algs {
		s.Rules = append(s.Rules, statusOfRule{
			Name: t.rules.labels[i], Limit: t.rules.specs[i].Limit, Window: inSeconds(t.rules.specs[i].Window),
			Algorithm: strings.TrimPrefix(string(alg.CaddyModule().ID), algorithms.Namespace+"."), Options: optionsOf(alg),
		})
	}
	return s
}

// optionsOf are an algorithm's own options, if any are set.
func optionsOf(alg algorithms.Algorithm) json.RawMessage {
	b, err := json.Marshal(alg)
	if err != nil || string(b) == "{}" {
		return nil
	}
	return b
}

func inSeconds(us int64) float64 { return float64(us) / float64(second) }

// byZone reads a counter by its zone and one more label.
func (m *metrics) byZone(c prometheus.Collector, label string) map[string]map[string]uint64 {
	zones := make(map[string]map[string]uint64)
	read(c, func(labels map[string]string, s *dto.Metric) {
		zone := labels["zone"]
		if zones[zone] == nil {
			zones[zone] = make(map[string]uint64)
		}
		zones[zone][labels[label]] += uint64(s.GetCounter().GetValue())
	})
	return zones
}

// timings are how long decisions took, by store.
func (a *App) timings() []statusOfTiming {
	all := []statusOfTiming{}
	read(a.metrics.seconds, func(labels map[string]string, s *dto.Metric) {
		h := s.GetHistogram()
		if h.GetSampleCount() > 0 {
			all = append(all, statusOfTiming{
				labels["store"], h.GetSampleCount(), h.GetSampleSum(), quantile(h, 0.5), quantile(h, 0.99),
			})
		}
	})
	slices.SortFunc(all, func(a, b statusOfTiming) int { return strings.Compare(a.Store, b.Store) })
	return all
}

// quantile is the upper bound of the bucket that a quantile lies in.
func quantile(h *dto.Histogram, q float64) float64 {
	rank := uint64(q * float64(h.GetSampleCount()))
	for _, b := range h.GetBucket() {
		if b.GetCumulativeCount() > rank {
			return b.GetUpperBound()
		}
	}
	return 1
}

// read calls each for what a collector has.
func read(c prometheus.Collector, each func(labels map[string]string, s *dto.Metric)) {
	samples := make(chan prometheus.Metric, 64)
	go func() {
		defer close(samples)
		c.Collect(samples)
	}()
	for s := range samples {
		var m dto.Metric
		if err := s.Write(&m); err != nil {
			continue
		}
		labels := make(map[string]string, len(m.GetLabel()))
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		each(labels, &m)
	}
}
