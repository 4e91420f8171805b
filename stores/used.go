package stores

import "github.com/dianalimiter/diana/algorithms"

// The indexes of [Result.Used].
const (
	Before = iota
	After
)

// SetUsed sets what is used by the state, before or after a charge.
func (res *Result) SetUsed(when int, r algorithms.Rule, s algorithms.State, now int64) {
	remaining, _ := r.Numbers(s, now)
	res.Used[when] = r.Capacity() - remaining
}
