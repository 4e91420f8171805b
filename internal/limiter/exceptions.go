package limiter

import (
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/stores"
)

// find returns the override of a key: the most specific exception that has not ended, or the most
// specific of the others.
func (a *activeRules) find(z *Zone, k *key.Encoded, hash stores.Key) (*override, bool) {
	if a.exceptions != nil {
		now := z.env.wall()
		if o, ok := a.exceptions.FindIf(k, hash, func(o *override) bool { return !o.over(now) }); ok {
			return o, true
		}
	}
	return a.keys.Find(k, hash)
}

// over reports whether an exception has ended.
func (o *override) over(now int64) bool {
	until := o.checked.Exception.Until
	return !until.IsZero() && now >= until.UnixMicro()
}
