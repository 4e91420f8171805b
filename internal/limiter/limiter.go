// Package limiter takes requests through the zones of a rate_limit handler: it finds
// the zones that apply and what they count by, has their stores decide, waits where
// a zone allows it, answers what is denied, and reports. It knows HTTP, and neither
// the app, the Caddyfile nor the admin API.
package limiter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dianalimiter/diana/rules"
)

// Limiter decides about the requests of one handler.
type Limiter struct {
	env    *Environment
	o      Options
	zones  []*Zone
	across bool // the zones' keys are in more than one place
}

// New returns a limiter whose zones have their own rules in force. Close must be
// called, also after an error.
func New(env *Environment, o Options) (*Limiter, error) {
	l := &Limiter{env: env, o: o}
	for _, c := range o.Zones {
		z, err := newZone(env, &o, c)
		if err != nil {
			return l, err
		}
		if slices.ContainsFunc(l.zones, func(other *Zone) bool { return other.Name == z.Name }) {
			return l, errors.Join(fmt.Errorf("zone %s stands twice in one handler: want another name", z.Name), z.release())
		}
		l.zones = append(l.zones, z)
		l.across = l.across || z.store != l.zones[0].store
	}
	l.across = l.across || len(l.zones) > 1 && slices.ContainsFunc(l.zones, (*Zone).clustered)
	c, err := newChange(l.zones, nil)
	if err != nil {
		var at *rules.Error
		if errors.As(err, &at) {
			err = at.Err // the configuration is no document
		}
		return l, err
	}
	return l, c.commit()
}

// Zones returns the zones, in the order in which a denial is looked for.
func (l *Limiter) Zones() []*Zone { return l.zones }

// Close gives back what the zones took.
func (l *Limiter) Close() (err error) {
	for _, z := range l.zones {
		err = errors.Join(err, z.release())
	}
	return err
}
