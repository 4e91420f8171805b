package adaptive

// heap is a binary heap of waiting requests, which know where they are in it: each operation takes O(log n).
type heap []*Ticket

// The heaps of a band.
const (
	firstOut = iota // the least tag, and of equal tags the first come, is at the root
	lastOut         // the last of that order is
	oldest          // the first come is
	kinds
)

// precedes reports whether a is nearer to the root of a heap of a kind than b.
func precedes(a, b *Ticket, kind int) bool {
	switch kind {
	case oldest:
		return a.order < b.order
	case lastOut:
		a, b = b, a
	}
	return a.tag < b.tag || a.tag == b.tag && a.order < b.order
}

func (h *heap) push(t *Ticket, kind int) {
	*h = append(*h, t)
	h.up(len(*h)-1, kind)
}

func (h *heap) remove(t *Ticket, kind int) {
	i, last := t.at[kind], len(*h)-1
	moved := (*h)[last]
	(*h)[last] = nil
	if *h = (*h)[:last]; i == last {
		return
	}
	h.put(i, moved, kind)
	h.up(i, kind)
	h.down(moved.at[kind], kind)
}

func (h heap) put(i int, t *Ticket, kind int) { h[i], t.at[kind] = t, i }

func (h heap) up(i, kind int) {
	t := h[i]
	for i > 0 && precedes(t, h[(i-1)/2], kind) {
		h.put(i, h[(i-1)/2], kind)
		i = (i - 1) / 2
	}
	h.put(i, t, kind)
}

func (h heap) down(i, kind int) {
	t := h[i]
	for {
		c := 2*i + 1
		if c+1 < len(h) && precedes(h[c+1], h[c], kind) {
			c++
		}
		if c >= len(h) || !precedes(h[c], t, kind) {
			break
		}
		h.put(i, h[c], kind)
		i = c
	}
	h.put(i, t, kind)
}
