package algorithms

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func init() { caddy.RegisterModule((*GCRA)(nil)) }

// GCRA is the generic cell rate algorithm: one theoretical arrival time per
// key, which each admitted request moves on by its share of the window. A
// burst may pass back to back, after that the requests are spaced evenly.
//
// In any window at most burst + limit pass. One time per key is kept.
//
// Source: ITU-T I.371, annex A.
type GCRA struct {
	// How much cost may pass back to back. Default: the limit.
	Burst int64 `json:"burst,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*GCRA) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: Namespace + ".gcra", New: func() caddy.Module { return new(GCRA) }}
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
