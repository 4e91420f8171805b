package memory

import "github.com/dianalimiter/diana/algorithms"

// layout defines where the words of each rule lie in a slot of a table. A slot
// is {key, key, states...}. A state that grows lies in the arena, and the slot has
// one word that refers to it.
type layout struct {
	rules  []ruleLayout
	stride int
	grows  bool // any rule
}

// ruleLayout is the layout of one rule's state.
type ruleLayout struct {
	at    int
	words int // in the slot
	grows bool
}

const keyWords = 2

func newLayout(rules []algorithms.Rule) layout {
	l := layout{stride: keyWords}
	for _, r := range rules {
		x := ruleLayout{at: l.stride, words: r.Words()}
		if _, x.grows = r.(algorithms.Growing); x.grows {
			x.words = 1
		}
		l.rules = append(l.rules, x)
		l.stride += x.words
		l.grows = l.grows || x.grows
	}
	return l
}
