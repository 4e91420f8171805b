package algorithms

import (
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/option"
)

func init() { caddy.RegisterModule((*LeakyBucket)(nil)) }

// LeakyBucket is a queue that drains at limit per window. An admitted request
// waits for its turn, so that requests leave evenly spaced; one that finds the
// queue full is denied. With nodelay it passes at once and only the queue's
// length is kept.
//
// A queue without a burst holds what drains in the zone's max_wait (default
// 1s). One with a burst and no max_wait is as long as its burst.
//
// In any window at most burst + limit arrive, and at most limit plus the cost
// of one request leave. One time per key is kept.
//
// Source: ITU-T I.371, annex A; the shaping is that of nginx's limit_req.
type LeakyBucket struct {
	// How much cost fits in the queue, with what leaves at once. Default: what
	// drains in max_wait; with nodelay the limit.
	Burst int64 `json:"burst,omitempty"`

	// Let what is admitted pass at once. Default: false.
	NoDelay bool `json:"nodelay,omitempty"`
}

const defaultQueue = 1_000_000 // microseconds

// CaddyModule returns the Caddy module information.
func (*LeakyBucket) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: Namespace + ".leaky_bucket", New: func() caddy.Module { return new(LeakyBucket) }}
}

// UnmarshalCaddyfile reads [burst <n>] [nodelay].
func (b *LeakyBucket) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := burstOption(&b.Burst)
	options["nodelay"] = option.Flag(&b.NoDelay)
	return readOptions(d, options)
}

// Kind implements [Algorithm].
func (*LeakyBucket) Kind() string { return "leaky_bucket" }

// LeasedKind implements [Leasable]. A queue that delays cannot be leased: each
// request has a turn of its own.
func (b *LeakyBucket) LeasedKind() (string, bool) { return b.Kind(), b.NoDelay }

// Lua implements [Algorithm].
func (*LeakyBucket) Lua() string { return meterLua }

// MaxDelay is the longest, in microseconds, that a request may have to wait
// for its turn; 0 with nodelay.
func (b *LeakyBucket) MaxDelay(sp Spec) int64 {
	switch {
	case b.NoDelay:
		return 0
	case sp.MaxWait > 0:
		return sp.MaxWait
	case b.Burst > 0 && sp.Limit > 0 && sp.Window > 0:
		if l, w := ratio(sp.Limit, sp.Window); w <= maxExact/b.Burst {
			return cd((b.Burst-1)*w, l)
		}
		return maxExact // refused by Compile
	}
	return defaultQueue
}

// Compile implements [Algorithm].
func (b *LeakyBucket) Compile(sp Spec) (Rule, error) {
	if b.NoDelay {
		burst, err := checkBurst(b.Burst, sp)
		if err != nil {
			return nil, err
		}
		return newMeter(sp, burst, 0, noDelay)
	}
	if sp.Debt {
		return nil, errors.New("a leaky_bucket that delays cannot be charged after the response: want nodelay, or another algorithm, beside count_status or settle")
	}
	if err := sp.check(); err != nil {
		return nil, err
	}
	wait := b.MaxDelay(sp)
	l, w := ratio(sp.Limit, sp.Window)
	if l >= maxDrain || wait > maxExact/l {
		return nil, fmt.Errorf("limit %d with a wait of %v: the arithmetic would leave 2^52; want smaller numbers", sp.Limit, time.Duration(wait)*time.Microsecond)
	}
	burst := b.Burst
	if burst == 0 {
		if burst = wait*l/w + 1; burst < sp.Cost {
			return nil, fmt.Errorf("cost %d: a queue of %v holds at most %d at this rate; want a longer max_wait", sp.Cost, time.Duration(wait)*time.Microsecond, burst)
		}
	}
	burst, err := checkBurst(burst, sp)
	if err != nil {
		return nil, err
	}
	if burst-1 > wait*l/w {
		return nil, fmt.Errorf("burst %d: max_wait %v holds at most %d at this rate; want a smaller burst or a longer max_wait",
			burst, time.Duration(wait)*time.Microsecond, wait*l/w+1)
	}
	return newMeter(sp, burst, 0, wait)
}

var _ Leasable = (*LeakyBucket)(nil)
