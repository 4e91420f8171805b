package limiter

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/dianalimiter/diana/config"
)

// change replaces the active rules of a limiter's zones. The new rules are compiled but
// not in force until commit. Either commit or undo must be called.
type change struct {
	zones     []*Zone
	old, next []*activeRules
}

// newChange returns the change that applies a document; nil: the zones' own rules.
func newChange(zones []*Zone, d *config.Document) (*change, error) {
	c := &change{zones: zones, old: make([]*activeRules, len(zones)), next: make([]*activeRules, len(zones))}
	var turn int64
	for i, z := range zones {
		c.old[i] = z.active.Load()
		a, err := draft(z, d.Of(z.Name))
		if err != nil {
			return nil, inDocument(d, z.Name, err)
		}
		c.next[i] = a
		turn = max(turn, a.from.MaxDelay())
	}
	if err := c.checkStores(); err != nil && d != nil {
		return nil, config.At("/zones", err)
	} else if err != nil {
		return nil, err
	}
	for i, z := range zones {
		if a := c.next[i]; a == c.old[i] {
			if a.turn == turn {
				continue
			}
			c.next[i] = a.copy()
		}
		if err := c.next[i].compile(z, turn); err != nil {
			return nil, errors.Join(inDocument(d, z.Name, err), c.undo())
		}
	}
	return c, nil
}

// draft applies a document to a zone. It returns the active rules if nothing changes,
// otherwise rules that are not compiled yet.
func draft(z *Zone, d *config.Changes) (*activeRules, error) {
	if now := z.active.Load(); now != nil && reflect.DeepEqual(now.document, d) {
		return now, nil
	}
	a := &activeRules{document: d, from: z.Config, shadow: z.Shadow}
	if d != nil {
		c := d.Apply(z.Zone)
		var err error
		if a.from, err = c.Check(z.env.Responses); err != nil {
			return nil, err
		}
		a.shadow = c.Shadow
	}
	a.kinds = z.kinds(a.from)
	return a, nil
}

// inDocument adds to an error of a zone its position in a document; nil: in the configuration.
func inDocument(d *config.Document, zone string, err error) error {
	if d == nil {
		return config.InZone(zone, err)
	}
	return config.At("/zones/"+zone, err) // names of zones need no escapes
}

// checkStores rejects a leaky_bucket that delays in several zones whose keys are not in
// one store, and in one slot of a cluster.
func (c *change) checkStores() error {
	var last *Zone
	for i, z := range c.zones {
		if c.next[i].shadow || c.next[i].from.MaxDelay() == 0 {
			continue
		}
		if last != nil && (last.store != z.store || z.clustered() && last.Config.Plan.Identity() != z.Config.Plan.Identity()) {
			return fmt.Errorf("zones %s and %s: a leaky_bucket that delays in both, which are not decided in one place: want the same store, and in a cluster the same key", last.Name, z.Name)
		}
		last = z
	}
	return nil
}

// commit puts the change in force.
func (c *change) commit() error {
	for i, z := range c.zones {
		if c.next[i] != c.old[i] {
			z.active.Store(c.next[i])
			c.next[i].adopt(z)
		}
	}
	tellWaiting(c.zones)
	return release(c.old, c.next)
}

// tellWaiting tells the requests that wait in the zones of a limiter that rules of one have changed.
func tellWaiting(zones []*Zone) {
	for _, z := range zones {
		z.common.queue.changed()
	}
}

// undo releases the new rules.
func (c *change) undo() error { return release(c.next, c.old) }

// release releases all rules except the kept ones.
func release(all, kept []*activeRules) (err error) {
	for i, a := range all {
		if a != nil && a != kept[i] {
			err = errors.Join(err, a.release())
		}
	}
	return err
}
