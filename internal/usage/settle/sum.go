package settle

import (
	"math/big"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/usage/scan"
)

// million is the number of parts of a unit.
var million = big.NewInt(1_000_000)

// sum is a sum of weighted numbers, exact in millionths of millionths.
type sum struct {
	total     big.Int
	unweighed bool // a weight had no value
}

// add adds a whole number by its weight.
func (s *sum) add(weight *factor, t *told, n int64) {
	if n == 0 {
		return
	}
	w, ok := weight.amount(t)
	if !ok {
		s.unweighed = true
		return
	}
	s.addAmount(w, scan.Amount{Units: n})
}

func (s *sum) addAmount(weight, value scan.Amount) {
	s.total.Add(&s.total, new(big.Int).Mul(micros(weight), micros(value)))
}

// cost returns the sum, rounded up, at most [config.MaxCost].
func (s *sum) cost() int64 {
	square := new(big.Int).Mul(million, million)
	n := new(big.Int).Add(&s.total, new(big.Int).Sub(square, big.NewInt(1)))
	if n.Div(n, square); !n.IsInt64() || n.Int64() > config.MaxCost {
		return config.MaxCost
	}
	return n.Int64()
}

func micros(a scan.Amount) *big.Int {
	n := new(big.Int).Mul(big.NewInt(a.Units), million)
	return n.Add(n, big.NewInt(a.Micros))
}
