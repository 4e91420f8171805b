// Package limiter implements the rate_limit handler: for each request it finds the zones
// that apply and their keys, asks the stores, waits if a zone has max_wait, responds
// to denied requests, and reports the decision. It does not depend on the app, the
// Caddyfile or the admin API.
package limiter

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/body"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/stores"
)

// Limiter decides about the requests of one handler.
type Limiter struct {
	env     *Environment
	o       Options
	zones   []*Zone
	kept    []stores.Kept // the stores of the zones that are to be told of their uses
	order   string        // among the limiters of a registry
	repeats bool          // whether a request may pass one of the zones twice
	follows bool          // whether an earlier handler may have admitted a request
	meets   atomic.Bool   // whether a request may meet another handler, too, by the routes
	counted counted       // where the zones are
	headers headerFormat  // of responses
	charges bool          // whether a zone charges, or releases permits, after the response
	settles bool          // whether a zone's response tells the cost
	maxBody int64         // bytes of a body that are read: the most that a zone wants
	places  bool          // whether a zone has in_flight adaptive
	lingers bool          // whether a zone keeps the permits of clients that leave

	others atomic.Pointer[Others] // nil: none concerns the limiter

	requests sync.Pool // of *request
	underway underway  // those that are charged after their response

	status int   // the status code of denied requests
	denial error // their error
}

// counted is where the zones of a limiter are counted.
type counted uint8

const (
	inProcess counted = iota // all in this process
	inStore                  // all in a store that instances share
	inStores                 // in several stores, or slots of one
)

// maxZones is the greatest number of zones of a handler. A call to Redis has 16 bits for
// the number of keys: three for the rules of a zone and two for prevent_duplicates.
const maxZones = math.MaxUint16 / 5

// New returns a limiter with the zones' own rules in force. Close must be called, also
// after an error.
func New(env *Environment, o Options) (*Limiter, error) {
	l := &Limiter{env: env, o: o, repeats: o.Invoked, follows: o.Invoked, status: cmp.Or(o.RejectStatus, http.StatusTooManyRequests)}
	l.denial = statusError(l.status)
	l.headers = formatOf(cmp.Or(o.Headers, DefaultHeaders))
	if n := len(o.Zones); n > maxZones {
		return l, fmt.Errorf("%d zones in one handler: want at most %d", n, maxZones)
	}
	var invalid []error
	for _, c := range o.Zones {
		z, err := newZone(env, &l.o, c)
		if err == nil && slices.ContainsFunc(l.zones, func(other *Zone) bool { return other.Name == z.Name }) {
			err = errors.Join(fmt.Errorf("zone %s is given twice in one handler: want another name", z.Name), z.release())
		}
		if err != nil {
			invalid = append(invalid, err)
			continue
		}
		l.zones = append(l.zones, z)
		if s := z.store.kept; s != nil && !slices.Contains(l.kept, s) {
			l.kept = append(l.kept, s)
		}
		switch {
		case z.store != l.zones[0].store, z.clustered() && len(l.zones) > 1:
			l.counted = inStores
		case !z.store.local():
			l.counted = max(l.counted, inStore)
		}
		l.places = l.places || z.places != nil
		l.charges = l.charges || z.Config.Charge.AfterResponse() || z.Places()
		l.lingers = l.lingers || z.Linger > 0
		l.maxBody = max(l.maxBody, cmp.Or(z.MaxBody, body.Max))
		l.settles = l.settles || z.Config.Charge.Settle != nil
	}
	if err := option.Join(invalid...); err != nil {
		return l, err
	}
	for _, z := range l.zones {
		if l.counted == inStores || z.Holds() || z.Config.Charge.Statuses != nil {
			z.common.holds.Store(true)
		}
	}
	return l, l.apply(nil)
}

// apply puts the rules of a document in force; nil: the zones' own.
func (l *Limiter) apply(d *config.Document) error {
	c, err := newChange(l.zones, d)
	if err != nil {
		return err
	}
	return c.commit()
}

// Zones returns the zones in order of evaluation.
func (l *Limiter) Zones() []*Zone { return l.zones }

// Close releases the resources of the zones.
func (l *Limiter) Close() (err error) {
	for _, z := range l.zones {
		err = errors.Join(err, z.release())
	}
	return err
}

// statusError is the error of denied requests. Its message is what {http.error.message} is for
// an error without one: the text of the status.
type statusError int

// Error implements error.
func (e statusError) Error() string { return cmp.Or(http.StatusText(int(e)), "rate limit exceeded") }
