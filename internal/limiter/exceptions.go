package limiter

import (
	"fmt"
	"sync/atomic"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/stores"
)

// exceptions are overrides that precede all others, until they end.
type exceptions struct {
	zone *Zone
	list []*override

	// index has those that had not ended when it was built.
	index atomic.Pointer[key.Index[*override]]
	built atomic.Int64 // when that was, in microseconds since 1970
}

// find returns the override of a key: an exception that has not ended, or the most specific of
// the others.
func (a *activeRules) find(k *key.Encoded, hash stores.Key) (*override, bool) {
	if a.exceptions != nil {
		if o, ok := a.exceptions.find(k, hash); ok {
			return o, true
		}
	}
	return a.keys.Find(k, hash)
}

// find returns the exception of a key that has not ended.
func (e *exceptions) find(k *key.Encoded, hash stores.Key) (*override, bool) {
	now := e.zone.env.wall()
	if now < e.built.Load() { // the clock was set back: some may not have ended
		_ = e.build(now) // they were valid before
	}
	o, ok := e.index.Load().Find(k, hash)
	if ok && o.over(now) && e.build(now) == nil {
		o, ok = e.index.Load().Find(k, hash)
	}
	return o, ok
}

// over reports whether an exception has ended.
func (o *override) over(now int64) bool {
	until := o.checked.Exception.Until
	return !until.IsZero() && now >= until.UnixMicro()
}

// build builds the index of those that have not ended.
func (e *exceptions) build(now int64) error {
	x := new(key.Index[*override])
	for _, o := range e.list {
		if o.over(now) {
			continue
		}
		for p, err := range o.checked.Patterns() {
			if err != nil {
				return &config.Error{At: o.checked.Override, Err: err}
			}
			first, twice, err := x.Add(p, e.zone.store.Hasher, o)
			if (twice || first != nil) && first != o {
				err = fmt.Errorf("exception %q is given twice", p.Words())
			}
			if err != nil {
				return &config.Error{At: o.checked.Override, Err: err}
			}
		}
	}
	e.index.Store(x)
	e.built.Store(now)
	return nil
}
