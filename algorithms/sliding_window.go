package algorithms

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/configure/option"
)

func init() { caddy.RegisterModule(new(SlidingWindow)) }

// SlidingWindow divides the window into parts and has a counter for each. The
// oldest part, which has partly left the window, counts in full, so that at most
// limit are admitted in any window. A client that sends exactly limit requests per
// window is denied about one request in buckets + 1.
//
// The state is buckets + 1 counters.
type SlidingWindow struct {
	// The number of parts of the window, 1 to 1000. Default: 10.
	Buckets int `json:"buckets,omitempty"`
}

const (
	defaultBuckets = 10
	maxBuckets     = 1000
)

//go:embed sliding_window.lua
var slidingWindowLua string

// CaddyModule returns the Caddy module information.
func (*SlidingWindow) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.algorithms.sliding_window", New: func() caddy.Module { return new(SlidingWindow) }}
}

// UnmarshalCaddyfile reads [buckets <n>].
func (w *SlidingWindow) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return readOptions(d, map[string]option.Parse{"buckets": option.Whole(&w.Buckets, 1, maxBuckets)})
}

// Parts returns the number of parts of the window.
func (w *SlidingWindow) Parts() int64 {
	if w.Buckets == 0 {
		return defaultBuckets
	}
	return int64(w.Buckets)
}

// Kind implements [Algorithm].
func (w *SlidingWindow) Kind() string { return fmt.Sprintf("sliding_window/%d", w.Parts()) }

// LeasedKind implements [Leasable]. The state has one counter more.
func (w *SlidingWindow) LeasedKind() (string, bool) { return w.Kind() + " leased", true }

// Lua implements [Algorithm].
func (*SlidingWindow) Lua() string { return slidingWindowLua }

// Compile implements [Algorithm].
func (w *SlidingWindow) Compile(sp Spec) (Rule, error) {
	if err := CheckLimit(sp); err != nil {
		return nil, err
	}
	k := w.Parts()
	if k < 1 || k > maxBuckets || k > sp.Window {
		return nil, fmt.Errorf("buckets %d: want 1 to %d, and no more than the window has microseconds", k, maxBuckets)
	}
	width := cd(sp.Window, k)
	if sp.Lease > width {
		return nil, errLease(sp.Lease, "it is longer than a part of the window, %v", time.Duration(width)*time.Microsecond)
	}
	words := plain(k) + 2
	if sp.Lease > 0 {
		words++
	}
	return &slidingWindow{words, windowed{sp.Share(sp.Limit), sp.Window}, k, width, sp.Lease}, nil
}

// slidingWindow has the state {newest, c[0], ..., c[parts]}: the index of the newest
// part that was charged, and the cost charged to each part, the newest first. With a
// lease, the newest part may be the next one, and there is one counter more.
type slidingWindow struct {
	plain
	windowed
	parts int64
	width int64 // of a part, in microseconds, rounded up: rounded down it would admit 2L
	lease int64
}

func (w *slidingWindow) Args(int64) []int64 {
	return []int64{w.limit, w.parts, w.width, w.lease}
}

func (w *slidingWindow) Repair(s State, now int64) bool {
	if j := (now + w.lease) / w.width; s[0] > j {
		s[0] = j
		return true
	}
	return false
}

// live returns the counters that are in the window at now, newest first, and their
// sum.
func (w *slidingWindow) live(s State, now int64) (counters []int64, used int64) {
	age := now/w.width - s[0]
	if age > w.parts {
		return nil, 0
	}
	counters = s[1 : 2+w.parts-age]
	for _, c := range counters {
		used += c
	}
	return counters, used
}

func (w *slidingWindow) Judge(s State, now, cost, held int64) Verdict {
	counters, used := w.live(s, now)
	return w.judge(used, cost, held, func() int64 {
		// The oldest parts leave first, one with each step.
		m := int64(0)
		for x := len(counters) - 1; used+cost > w.limit; x-- {
			used -= counters[x]
			m++
		}
		return (now/w.width+m)*w.width - now
	})
}

func (w *slidingWindow) Charge(s State, now, cost, _ int64) {
	j := now / w.width
	w.roll(s, j)
	s[1+s[0]-j] += cost
}

// roll makes part j the newest one, unless a later one is.
func (w *slidingWindow) roll(s State, j int64) {
	if age := j - s[0]; age > 0 {
		c := s[1:]
		kept := max(0, int64(len(c))-age)
		copy(c[int64(len(c))-kept:], c[:kept])
		clear(c[:int64(len(c))-kept])
		s[0] = j
	}
}

func (w *slidingWindow) Overdraw(s State, now, cost int64) (charged int64) {
	_, used := w.live(s, now)
	cost = w.overdraft(used, cost)
	w.Charge(s, now+w.lease, cost, 0)
	return cost
}

func (w *slidingWindow) Numbers(s State, now int64) (remaining, reset int64) {
	counters, used := w.live(s, now)
	for x, c := range counters {
		if c > 0 {
			reset = (s[0]-int64(x)+w.parts+1)*w.width - now
			break
		}
	}
	return max(0, w.limit-used), reset
}

var _ Leasable = (*SlidingWindow)(nil)
