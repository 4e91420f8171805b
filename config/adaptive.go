package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/dianalimiter/diana/internal/key"
)

// Adaptive is an in_flight that finds its limit: as many concurrent requests of the zone, whatever
// their key, as the upstream serves best. A further request waits up to max_wait, and
// otherwise gets 503 and Retry-After. Each instance has its own limit, which survives a reload.
type Adaptive struct {
	// The least limit, at least 1. Default: 4.
	Min int64 `json:"min,omitempty"`

	// The greatest limit, at most 1000000000. Default: 1000.
	Max int64 `json:"max,omitempty"`

	// The priority of a request that waits: a placeholder whose value is one of classes or, without
	// classes, a number from 0, which is served first, to 7. Another value counts as the last.
	// Default: all are equal.
	Priority Value `json:"priority,omitempty"`

	// The values of priority, the most important first, at most 8. Default: 0 to 7.
	Classes []string `json:"classes,omitempty"`
}

const (
	defaultLeast = 4
	defaultMost  = 1000

	// Priorities is the greatest number of classes of requests that wait.
	Priorities = 8
)

// Priority is the priority of requests, parsed for deciding.
type Priority struct {
	template key.Template
	classes  []string
	names    []string // by band
}

// Bounds returns the least and the greatest limit.
func (a *Adaptive) Bounds() (least, most int64) {
	least = cmp.Or(a.Min, defaultLeast)
	if most = cmp.Or(a.Max, defaultMost); a.Min == 0 {
		least = min(least, most)
	}
	return least, most
}

// checkAdaptive checks in_flight adaptive.
func (z *Zone) checkAdaptive() (*Priority, error) {
	a := z.InFlightAdaptive
	if a == nil {
		return nil, nil //nolint:nilnil // the zone has no priorities
	}
	least, most := a.Bounds()
	switch {
	case z.InFlight > 0:
		return nil, fmt.Errorf("in_flight %d and in_flight adaptive in one zone: want one of them, or two zones", z.InFlight)
	case a.Min < 0 || a.Min > MaxInFlight:
		return nil, fmt.Errorf("in_flight adaptive: min %d: want 1 to %d", a.Min, MaxInFlight)
	case a.Max < 0 || a.Max > MaxInFlight:
		return nil, fmt.Errorf("in_flight adaptive: max %d: want 1 to %d", a.Max, MaxInFlight)
	case most < least && a.Max == 0:
		return nil, fmt.Errorf("in_flight adaptive: min %d is above max, which is %d by default: want max too", least, most)
	case most < least:
		return nil, fmt.Errorf("in_flight adaptive: max %d is below min %d: want at least as much", most, least)
	case a.Priority == "" && len(a.Classes) > 0:
		return nil, errors.New("in_flight adaptive: classes without priority: want the placeholder whose values they are")
	case len(a.Classes) > Priorities:
		return nil, fmt.Errorf("in_flight adaptive: %d classes: want at most %d", len(a.Classes), Priorities)
	}
	return newPriority(a)
}

func newPriority(a *Adaptive) (*Priority, error) {
	p := &Priority{classes: a.Classes, names: a.Classes}
	for i, c := range a.Classes {
		switch {
		case c == "":
			return nil, errors.New("in_flight adaptive: an empty class: want a value of priority; other values count as the last class")
		case strings.Contains(c, "{") && strings.Contains(c, "}"):
			return nil, fmt.Errorf("in_flight adaptive: class %s: want a value of priority, which is one placeholder", c)
		case slices.Contains(a.Classes[:i], c):
			return nil, fmt.Errorf("in_flight adaptive: class %s twice: want each once", c)
		}
	}
	var err error
	if p.template, err = key.Parse(Expand(string(a.Priority))); err != nil {
		return nil, fmt.Errorf("in_flight adaptive: priority: %w", err)
	}
	if p.template.ReadsBody() {
		return nil, fmt.Errorf("in_flight adaptive: priority %s: a field of the body, which is read while the request has no place yet: want a placeholder of the head of the request", a.Priority)
	}
	text, constant := p.template.Constant()
	if constant && text != "" {
		if _, ok := p.band(text); !ok {
			return nil, fmt.Errorf("in_flight adaptive: priority %s: want a placeholder, or %s", text, p.wanted())
		}
	}
	if a.Priority != "" && len(a.Classes) == 0 {
		p.names = strings.Split("01234567", "")
	}
	return p, nil
}

func (p *Priority) wanted() string {
	if len(p.classes) == 0 {
		return "a number from 0 to 7"
	}
	return "one of its classes: " + strings.Join(p.classes, ", ")
}

// Band returns the band of a request, 0 is served first. It returns the last and false if the value of the request is no
// class.
func (p *Priority) Band(r *http.Request) (band int, ok bool) {
	if len(p.names) == 0 {
		return 0, true
	}
	return p.band(p.template.Text(r))
}

func (p *Priority) band(value string) (int, bool) {
	if len(p.classes) > 0 {
		if i := slices.Index(p.classes, value); i >= 0 {
			return i, true
		}
		return len(p.classes) - 1, false
	}
	if len(value) == 1 && value[0] >= '0' && value[0] < '0'+Priorities {
		return int(value[0] - '0'), true
	}
	return Priorities - 1, false
}

// Names returns the names of the bands; none: all requests are equal.
func (p *Priority) Names() []string { return p.names }

// Placeholders returns the names of the placeholders of the priority.
func (p *Priority) Placeholders() []string {
	if p == nil {
		return nil
	}
	return p.template.Placeholders()
}
