package algorithms

import (
	_ "embed"
	"fmt"
	"sort"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func init() { caddy.RegisterModule(new(SlidingLog)) }

// SlidingLog keeps the timestamp of every admitted request for one window. It is
// exact: at most limit are admitted in any window, and no request is denied that
// would keep within that.
//
// The state has 8 bytes for each unit of cost in the window, rounded up to a power of two of them.
// Charges after responses may fill it to twice the limit.
type SlidingLog struct{}

// maxLog bounds the memory of one key to 8 MiB.
const maxLog = 1 << 20

//go:embed sliding_log.lua
var slidingLogLua string

// CaddyModule returns the Caddy module information.
func (*SlidingLog) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.algorithms.sliding_log", New: func() caddy.Module { return new(SlidingLog) }}
}

// UnmarshalCaddyfile reads the options; there are none.
func (*SlidingLog) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return readOptions(d, nil)
}

// Kind implements [Algorithm].
func (*SlidingLog) Kind() string { return "sliding_log" }

// LeasedKind implements [Leasable]. Timestamps may be ahead of the clock.
func (l *SlidingLog) LeasedKind() (string, bool) { return l.Kind() + " leased", true }

// Lua implements [Algorithm].
func (*SlidingLog) Lua() string { return slidingLogLua }

// Compile implements [Algorithm].
func (*SlidingLog) Compile(sp Spec) (Rule, error) {
	if err := CheckLimit(sp); err != nil {
		return nil, err
	}
	if sp.Limit > maxLog {
		return nil, fmt.Errorf("limit %d: a sliding_log remembers every request, at most %d; want sliding_window", sp.Limit, maxLog)
	}
	return &slidingLog{windowed{sp.Share(sp.Limit), sp.Window}, sp.Lease}, nil
}

// slidingLog has the state {count, ring...}: the number of timestamps ever written,
// and the latest of them, timestamp i at ring[i % len(ring)]. Timestamps never
// decrease: cost charged in advance has the end of the lease as its timestamp, and
// so has what is charged before that end.
type slidingLog struct {
	windowed
	lease int64
}

const (
	minRing   = 4
	firstRing = 128 // length of a new ring in Redis, which grows by doubling

	// logAtOnce bounds the timestamps that one operation copies or rewrites. A larger
	// ring in Redis is as long as the limit, and of a larger log a step of the clock
	// back keeps only the newest timestamps.
	logAtOnce = 4096

	// logPutBack is the greatest limit of a log that is put back after it was lost. To write as many
	// timestamps takes Redis about 0.6 ms (TestPutBackTimes).
	logPutBack = 8192
)

func (l *slidingLog) Words() int { return 1 }
func (l *slidingLog) Args(int64) []int64 {
	return []int64{l.limit, l.window, min(l.limit, firstRing), l.lease}
}
func (l *slidingLog) View() Rule    { return &logView{l.windowed, l.lease} }
func (l *slidingLog) Header() int   { return 4 }
func stamp(s State, i int64) int64  { return s[1+i%int64(len(s)-1)] }
func setStamp(s State, i, at int64) { s[1+i%int64(len(s)-1)] = at }
func oldest(s State, n int64) int64 { return max(0, s[0]-min(n, int64(len(s)-1))) }

// live returns how many of the timestamps from lo on are in the window.
func (l *slidingLog) live(s State, lo, now int64) int64 {
	n := s[0] - lo
	return n - int64(sort.Search(int(n), func(i int) bool {
		return stamp(s, lo+int64(i)) > now-l.window
	}))
}

func (l *slidingLog) Repair(s State, now int64) bool {
	if s[0] == 0 {
		return false
	}
	excess := stamp(s, s[0]-1) - now
	if excess <= l.lease {
		return false
	}
	if s[0]-oldest(s, s[0]) > logAtOnce {
		kept := make([]int64, 0, logAtOnce)
		for i := s[0] - logAtOnce; i < s[0]; i++ {
			kept = append(kept, stamp(s, i))
		}
		s[0] = logAtOnce
		copy(s[1:], kept)
	}
	for i := oldest(s, s[0]); i < s[0]; i++ {
		setStamp(s, i, stamp(s, i)-excess)
	}
	return true
}

// leaves returns when the n-th oldest of the last limit timestamps leaves the
// window.
func (l *slidingLog) leaves(s State, n int64) int64 {
	i := s[0] - l.limit + n - 1
	if i < oldest(s, l.limit) {
		return 0
	}
	return stamp(s, i) + l.window
}

func (l *slidingLog) Judge(s State, now, cost, held int64) Verdict {
	switch {
	case cost > l.limit:
		return Verdict{Retry: Never}
	case l.leaves(s, cost) > now:
		return Verdict{Retry: l.leaves(s, cost) - now}
	case held > 0 && (held > l.limit-cost || l.leaves(s, cost+held) > now):
		return Verdict{Held: true}
	}
	return Verdict{Admit: true}
}

// Need implements [Growing]. The ring has room for every timestamp in the window,
// including those above the limit: charges under another limit, and overdrafts, see Overdraw.
func (l *slidingLog) Need(s State, now, cost int64) int {
	size, cost := int64(len(s)-1), min(cost, l.limit)
	if last := s[0] + cost - 1 - size; cost <= size && (last < 0 || stamp(s, last) <= now-l.window) {
		return len(s)
	}
	live := l.live(s, oldest(s, size), now)
	want := max(live, min(live+cost, 2*l.limit))
	for size = max(size, minRing); size < want; {
		size *= 2
	}
	return int(size) + 1
}

func (l *slidingLog) Move(dst, src State) {
	dst[0] = src[0]
	for i := oldest(src, src[0]); i < src[0]; i++ {
		setStamp(dst, i, stamp(src, i))
	}
}

func (l *slidingLog) Charge(s State, now, cost, _ int64) {
	if s[0] > 0 {
		now = max(now, stamp(s, s[0]-1))
	}
	for range cost {
		setStamp(s, s[0], now)
		s[0]++
	}
}

func (l *slidingLog) Overdraw(s State, now, cost int64) (charged int64) {
	cost = l.overdraft(l.live(s, oldest(s, s[0]), now), min(cost, l.limit))
	l.Charge(s, now+l.lease, cost, 0)
	return cost
}

func (l *slidingLog) Numbers(s State, now int64) (remaining, reset int64) {
	if s[0] > 0 {
		reset = max(0, stamp(s, s[0]-1)+l.window-now)
	}
	return l.limit - l.live(s, oldest(s, l.limit), now), reset
}

// logView is the view of a log: {cost left, when there is room for the cost that was
// decided, the last timestamp, the count, when the oldest leaves the window; 0: there is
// none}, and of a log with a limit of up to logPutBack the newest of those in the window, at
// most logRuns, the last one last; 0: there is none. If the instance has no snapshot of a
// log of more than logRuns, the count is negated, and instead of the newest timestamps there
// are the oldest of each of logRuns groups of equal size, the newest group first; after a
// charge there are none.
type logView struct {
	windowed
	lease int64
}

const viewWords = 5 // before the newest timestamps

func (v *logView) Words() int {
	if v.limit > logPutBack {
		return viewWords
	}
	return viewWords + logRuns
}

func (v *logView) Args(int64) []int64       { return nil }
func (v *logView) Repair(State, int64) bool { return false }
func (v *logView) Overdraw(s State, now, cost int64) (charged int64) {
	v.Charge(s, now+v.lease, cost, 0)
	return cost
}

func (v *logView) Judge(s State, now, cost, held int64) Verdict {
	left := s[0]
	if s[3] == 0 {
		left = v.limit
	}
	switch {
	case cost > v.limit:
		return Verdict{Retry: Never}
	case left+1 == cost:
		return Verdict{Retry: s[4] - now}
	case left < cost:
		return Verdict{Retry: s[1] - now}
	case left < cost+held:
		return Verdict{Held: true}
	}
	return Verdict{Admit: true}
}

func (v *logView) Charge(s State, now, cost, _ int64) {
	if s[3] == 0 {
		s[0] = v.limit
	}
	if s[2] = max(now, s[2]); s[0] == v.limit { // it becomes the oldest
		s[4] = s[2] + v.window
	}
	s[0] = max(0, s[0]-cost)
	newest := s[viewWords:]
	if s[3] < 0 {
		s[3] -= cost
		clear(newest)
		return
	}
	s[3] += cost
	kept := max(0, len(newest)-int(min(cost, logRuns)))
	copy(newest, newest[len(newest)-kept:])
	for i := range newest[kept:] {
		newest[kept+i] = s[2]
	}
}

func (v *logView) Numbers(s State, now int64) (remaining, reset int64) {
	if s[3] == 0 {
		return v.limit, 0
	}
	return s[0], max(0, s[2]+v.window-now)
}

var (
	_ Leasable = (*SlidingLog)(nil)
	_ Growing  = (*slidingLog)(nil)
)
