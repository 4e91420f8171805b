package algorithms

import (
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/configure/option"
)

func init() { caddy.RegisterModule(new(LeakyBucket)) }

// LeakyBucket is a queue that drains at limit per window. An admitted request
// waits for its turn, so that requests leave at even distances; a request is denied
// if the queue is full. With nodelay, admitted requests do not wait.
//
// A queue without a burst holds what drains in max_wait, the rule's or else the zone's
// (default 1s). A queue with a burst and no max_wait holds its burst.
//
// At most burst + limit are admitted in any window, and at most limit plus the cost
// of one request leave. The state is one time.
//
// Source: ITU-T I.371, annex A (https://www.itu.int/rec/T-REC-I.371); the delays are
// the ones of https://nginx.org/en/docs/http/ngx_http_limit_req_module.html.
type LeakyBucket struct {
	// The cost that the queue holds, with the request that leaves at once.
	// Default: what drains in max_wait; with nodelay, the limit.
	Burst int64 `json:"burst,omitempty"`

	// Do not delay admitted requests. Default: false.
	NoDelay bool `json:"nodelay,omitempty"`
}

const defaultQueue = 1_000_000 // microseconds

// CaddyModule returns the Caddy module information.
func (*LeakyBucket) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.algorithms.leaky_bucket", New: func() caddy.Module { return new(LeakyBucket) }}
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

// MaxDelay returns the longest delay of a request, in microseconds; 0 with nodelay.
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
		return maxExact // rejected by Compile
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
	if sp.Overdraws {
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
		if sp.MaxWaiting > 0 { // beside the request that leaves immediately
			burst = min(burst, max(sp.MaxWaiting+1, sp.Cost))
		}
	} else if sp.MaxWaiting > 0 && burst-1 > sp.MaxWaiting {
		return nil, fmt.Errorf("burst %d: max_waiting %d lets at most %d wait; want a burst of at most %d", burst, sp.MaxWaiting, sp.MaxWaiting, sp.MaxWaiting+1)
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
