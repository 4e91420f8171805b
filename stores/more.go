package stores

import (
	"time"

	"github.com/dianalimiter/diana/algorithms"
)

// heldMore is More while requests hold cost: when they are answered cannot be predicted.
const heldMore = int64(time.Second / time.Microsecond)

// Count sets the numbers of a result by the state after the decision. held is the cost that
// unanswered requests hold.
func (res *Result) Count(r algorithms.Rule, s algorithms.State, now, held int64) {
	res.Remaining, res.Reset = r.Numbers(s, now)
	res.Remaining = max(0, res.Remaining-held)
	res.SetMore(r, s, now, held)
}

// SetMore sets More of a result whose other numbers are set.
func (res *Result) SetMore(r algorithms.Rule, s algorithms.State, now, held int64) {
	res.More = 0
	switch {
	case held > 0:
		res.More = heldMore
	case res.Reset > 0:
		if res.More = r.Judge(s, now, res.Remaining+1, 0).Retry; res.More <= 0 {
			res.More = res.Reset // an algorithm whose capacity is left before nothing is used
		}
	}
}
