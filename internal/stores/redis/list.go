package redis

// list is a list of records, each at most once.
type list struct{ root link }

// link is the position of a record in a list. A record without one has no neighbors.
type link struct {
	rec        *record
	prev, next *link
}

func (l *list) init() { l.root.prev, l.root.next = &l.root, &l.root }

// first returns the first record, nil if there is none.
func (l *list) first() *record { return l.root.next.rec }

// put puts a record at the end, by its link for this list.
func (l *list) put(n *link) {
	n.remove()
	n.prev, n.next = l.root.prev, &l.root
	n.prev.next, n.next.prev = n, n
}

// remove removes a record from the list that it is in, if it is in one.
func (n *link) remove() {
	if n.next != nil {
		n.prev.next, n.next.prev = n.next, n.prev
		n.prev, n.next = nil, nil
	}
}
