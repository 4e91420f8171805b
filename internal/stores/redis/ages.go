package redis

// ages is a list of records in the order in which they are to be renewed.
type ages struct{ root record }

// aged is the position of a record in ages.
type aged struct {
	prev, next *record
	at         int64 // when it was put at the end, in microseconds
}

func (l *ages) init() { l.root.prev, l.root.next = &l.root, &l.root }

// first returns the record that was put at the end longest ago, nil if there is none.
func (l *ages) first() *record {
	if l.root.next == &l.root {
		return nil
	}
	return l.root.next
}

// touch puts a record at the end.
func (l *ages) touch(rec *record, now int64) {
	if rec.next != nil {
		rec.unlink()
	}
	rec.prev, rec.next, rec.at = l.root.prev, &l.root, now
	rec.prev.next, rec.next.prev = rec, rec
}

// unlink removes a record from its list.
func (rec *record) unlink() {
	rec.prev.next, rec.next.prev = rec.next, rec.prev
	rec.prev, rec.next = nil, nil
}
