package algorithms

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func init() { caddy.RegisterModule(new(GCRA)) }

// GCRA is the generic cell rate algorithm: each admitted request moves the
// theoretical arrival time of its key on by cost * window / limit. A burst is
// admitted at once; further requests are admitted at even distances.
//
// At most burst + limit are admitted in any window. The state is one time.
//
// Source: ITU-T I.371, annex A (https://www.itu.int/rec/T-REC-I.371).
type GCRA struct {
	// The cost that is admitted at once. Default: the limit.
	Burst int64 `json:"burst,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*GCRA) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.algorithms.gcra", New: func() caddy.Module { return new(GCRA) }}
}

// UnmarshalCaddyfile reads [burst <n>].
func (g *GCRA) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return readOptions(d, burstOption(&g.Burst))
}

// Kind implements [Algorithm].
func (*GCRA) Kind() string { return "gcra" }

// LeasedKind implements [Leasable].
func (g *GCRA) LeasedKind() (string, bool) { return g.Kind(), true }

// Lua implements [Algorithm].
func (*GCRA) Lua() string { return meterLua }

// Compile implements [Algorithm].
func (g *GCRA) Compile(sp Spec) (Rule, error) {
	burst, err := checkBurst(g.Burst, sp)
	if err != nil {
		return nil, err
	}
	return newMeter(sp, burst, 0, noDelay)
}

var _ Leasable = (*GCRA)(nil)
