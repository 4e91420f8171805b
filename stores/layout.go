package stores

import "github.com/dianalimiter/diana/algorithms"

// layout says where in a slot of a table the words of each rule lie. A slot is
// {key, key, states...} and, if requests hold places, {places, cost held}. A
// state that grows lies in the arena, and the slot has one word that finds it.
type layout struct {
	offsets []int
	grows   []bool
	places  int // offset of the words for held places; 0: none
	stride  int
}

const keyWords = 2

func newLayout(rules []algorithms.Rule, holds bool) layout {
	l := layout{stride: keyWords}
	for _, r := range rules {
		_, grows := r.(algorithms.Growing)
		l.offsets = append(l.offsets, l.stride)
		l.grows = append(l.grows, grows)
		if grows {
			l.stride++
		} else {
			l.stride += r.Words()
		}
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
