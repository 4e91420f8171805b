package limiter

import (
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/adaptive"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/metrics"
)

// KeyPlace is what in_flight adaptive would do about a request.
type KeyPlace struct {
	Priority string `json:"priority"`  // of the request; 0 without priorities
	Limit    int    `json:"limit"`     // requests that may be in flight now
	InFlight int    `json:"in_flight"` // requests that are
	Waits    bool   `json:"waits"`     // whether it would have to wait; if it may not, it is denied
}

// PlaceState returns the state of the zone's places; nil: it has no in_flight adaptive.
func (z *Zone) PlaceState() *metrics.PlaceState {
	if z.places == nil {
		return nil
	}
	s := z.places.State(clock.Now(), z.placing)
	state := &metrics.PlaceState{
		Min: z.placing.Min, Max: z.placing.Max, Limit: s.Limit, InFlight: s.InFlight,
		Waiting: make(map[string]int), Moves: make(map[string]uint64), Last: moveOf(&s.Last), Waits: z.places.waits,
	}
	for b := range max(1, len(z.Config.Priority.Names())) {
		name := z.priority(b)
		state.Priorities, state.Waiting[name] = append(state.Priorities, name), s.Waiting[b]
	}
	for i, n := range s.Moves {
		state.Moves[adaptive.Move(i).String()] = n
	}
	return state
}

// priority returns the name of a band.
func (z *Zone) priority(band int) string {
	if names := z.Config.Priority.Names(); band < len(names) {
		return names[band]
	}
	return strconv.Itoa(band)
}

func moveOf(c *adaptive.Change) *metrics.PlaceMove {
	if c.At == 0 {
		return nil
	}
	m := &metrics.PlaceMove{At: time.UnixMicro(clock.Wall(c.At)), To: c.Move.String(), From: c.From, Limit: c.To}
	switch {
	case c.Move == adaptive.Brake:
		m.Why = "most requests failed slowly"
	case c.More > 0:
		m.Why = fmt.Sprintf("with %.2f times as many in flight, latency was %.2f times as long", c.More, c.Longer)
	default:
		m.Why = fmt.Sprintf("latency was %.2f times the least", c.Longer)
	}
	return m
}

// placeOf returns what the zone's places would do about a request, nil: it wants none, and whether it would be denied
// for want of one.
func (z *zoneResult) placeOf(q *request) (p *KeyPlace, denies bool) {
	if z.zone.places == nil || z.active != nil && z.active.shadow || z.outcome == metrics.Skipped {
		return nil, false
	}
	band, _ := z.zone.Config.Priority.Band(q.r)
	s, v := z.zone.places.Peek(clock.Now(), z.zone.placing, z.key, band)
	return &KeyPlace{Priority: z.zone.priority(band), Limit: s.Limit, InFlight: s.InFlight, Waits: v == adaptive.Waits}, v == adaptive.Refused
}

const eventBraked = "rate_limit_braked"

// reportBrake logs that the limit of a zone was halved, at most once a minute and zone, and emits its event.
func (q *request) reportBrake(z *Zone, c *adaptive.Change) {
	if !z.places.brakeLog.Next(c.At) {
		return
	}
	fields := []zap.Field{zap.String("zone", z.WrittenName()), zap.Int("from", int(c.From)), zap.Int("limit", int(c.To)), zap.String("reason", "most requests failed slowly")}
	q.l.o.Logger.Warn("fewer requests in flight", fields...)
	q.emit(eventBraked, fields)
}
