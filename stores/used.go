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

// TakeUsed returns Used and clears it, so that nothing is reported twice.
func (res *Result) TakeUsed() (used [2]int64) {
	used = res.Used
	res.Used = [2]int64{}
	return used
}
