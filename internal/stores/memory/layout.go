package memory

import "github.com/dianalimiter/diana/algorithms"

// layout defines where the words of each rule lie in a slot of a table. A slot
// is {key, key, owed, owing, states...}, that of a table of this process alone without
// what is owed: cost that was charged to the states at the time owing and later, which Redis
// has not been told. A state that grows lies in the arena, and the slot has one word that
// refers to it.
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

// The words of a slot between its key and those of the rules.
const (
	slotOwed = keyWords + iota
	slotOwing
	slotWords
)

// mostOwed is the most cost that a key owes, far above what any rule counts.
const mostOwed = 1 << 52

// newLayout returns the layout of slots that have some words before those of the rules.
func newLayout(rules []algorithms.Rule, words int) layout {
	l := layout{stride: words}
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
