package stores

import "github.com/dianalimiter/diana/algorithms"

// layout says where in a slot of a table the words of each rule lie. A slot is
// {key, key, states...} and, if requests hold places, {places, cost held}. A
// state that grows lies in the arena, and the slot has one word that finds it. A
// paired state has two words: its first, and its second below the number of
// its pair.
type layout struct {
	rules  []ruleLayout
	places int // offset of the words for held places; 0: none
	stride int
	grows  bool // any rule
	paired bool // any rule
}

// ruleLayout is where the state of a rule lies.
type ruleLayout struct {
	at     int
	words  int // of the state in the slot
	full   int // of the state itself
	grows  bool
	paired bool
}

const (
	keyWords    = 2
	pairedWords = 4 // of a paired state
)

func newLayout(rules []algorithms.Rule, holds bool) layout {
	l := layout{stride: keyWords}
	for _, r := range rules {
		x := ruleLayout{at: l.stride, words: r.Words(), full: r.Words()}
		if _, x.grows = r.(algorithms.Growing); x.grows {
			x.words = 1
		} else if _, x.paired = r.(algorithms.Paired); x.paired {
			x.words = 2
		}
		l.rules = append(l.rules, x)
		l.stride += x.words
		l.grows, l.paired = l.grows || x.grows, l.paired || x.paired
	}
	if holds {
		l.places = l.stride
		l.stride += 2
	}
	return l
}

// held is how many places of a slot are taken and what cost they hold.
func (l *layout) held(slot []int64) (places, cost int64) {
	if l.places == 0 || slot == nil {
		return 0, 0
	}
	return slot[l.places], slot[l.places+1]
}
