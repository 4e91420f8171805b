package algorithms

import (
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/configure/option"
)

func init() { caddy.RegisterModule(new(TokenBucket)) }

// TokenBucket holds at most burst tokens and is full at first. A request takes
// its cost in tokens. The bucket is refilled with limit tokens per window,
// continuously or, with a step, at multiples of the step.
//
// At most burst + limit are admitted in any window. The state is one time.
//
// Source: J. S. Turner, New directions in communications (or which way to the
// information age?), IEEE Communications Magazine 24, 1986, pages 8-15.
type TokenBucket struct {
	// The number of tokens that the bucket holds. Default: the limit.
	Burst int64 `json:"burst,omitempty"`

	// Refill the bucket only at multiples of this duration since 1970-01-01 UTC.
	// It must divide the window. Default: continuously.
	Step caddy.Duration `json:"step,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*TokenBucket) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.algorithms.token_bucket", New: func() caddy.Module { return new(TokenBucket) }}
}

// UnmarshalCaddyfile reads [burst <n>] [step <duration>].
func (b *TokenBucket) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	options := burstOption(&b.Burst)
	options["step"] = option.Duration(&b.Step)
	return readOptions(d, options)
}

// Kind implements [Algorithm].
func (b *TokenBucket) Kind() string {
	if b.Step == 0 {
		return "token_bucket"
	}
	return fmt.Sprintf("token_bucket/step=%d", b.step())
}

func (b *TokenBucket) step() int64 { return time.Duration(b.Step).Microseconds() }

// LeasedKind implements [Leasable].
func (b *TokenBucket) LeasedKind() (string, bool) { return b.Kind(), true }

// Lua implements [Algorithm].
func (*TokenBucket) Lua() string { return meterLua }

// Compile implements [Algorithm].
func (b *TokenBucket) Compile(sp Spec) (Rule, error) {
	burst, err := checkBurst(b.Burst, sp)
	if err != nil {
		return nil, err
	}
	if d := time.Duration(b.Step); d != 0 {
		if d < time.Microsecond || d%time.Microsecond != 0 || sp.Window%b.step() != 0 {
			return nil, fmt.Errorf("step %v: want a step that divides the window", d)
		}
	}
	return newMeter(sp, burst, b.step(), noDelay)
}

var _ Leasable = (*TokenBucket)(nil)
