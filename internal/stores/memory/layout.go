package memory

import "github.com/dianalimiter/diana/algorithms"

// layout defines where the words of each rule lie in a slot of a table. A slot
// is {key, key, states...}. A state that grows lies in the arena, and the slot has
// one word that refers to it. A paired state takes two words: its first, and its
// second below the number of its pair.
type layout struct {
	rules  []ruleLayout
	stride int
	grows  bool // any rule
	paired bool // any rule
}

// ruleLayout is the layout of one rule's state.
type ruleLayout struct {
	at     int
	words  int // in the slot
	full   int // of the state itself
	grows  bool
	paired bool
}

const (
	keyWords    = 2
	pairedWords = 4 // of a paired state
)

func newLayout(rules []algorithms.Rule) layout {
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
	return l
}
