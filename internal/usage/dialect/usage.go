package dialect

import (
	"slices"

	"github.com/dianalimiter/diana/internal/usage/scan"
)

// Tokens are what a response took. None is counted twice.
type Tokens struct {
	Input   int64 // that was not read from a cache or written to one
	Cached  int64 // input that was read from a cache
	Written int64 // input that was written to a cache
	Output  int64 // reasoning included
}

// Usage is what a response tells, as it passes. It is a [scan.Sink].
type Usage struct {
	table *Table
	told  object   // so far
	now   []number // of objects that have not ended
	parts [servedParts + 1]object
	part  partKind // of the part that has not ended

	known bool // it told a positive number
	free  bool // it told that it used nothing

	// Of the text that has not ended, and of those since output was told.
	hasText, toldOutput bool
	hasUnknown          bool // text at a place that no row knows
	texts, unknown      int64
	events              int64 // without any
	anyText             bool
}

// object has the numbers of an object.
type object struct {
	n       [kinds]int64
	has     [kinds]bool
	beside  bool // as in row
	outside bool // as in row
}

type number struct {
	path int
	n    int64
}

// partKind is the kind of tokens that a part of a usage object counts.
type partKind uint8

const (
	otherParts  partKind = iota // such as a summary of what came before
	triedParts                  // attempts, declined if others serve the request in their place
	servedParts                 // those others
)

// Read returns the usage of a response that is yet to pass.
func (t *Table) Read() *Usage { return &Usage{table: t} }

// Found implements [scan.Sink].
func (u *Usage) Found(path int, v scan.Value) {
	l := &u.table.leaves[path]
	if v.Kind == scan.String && l.of >= 0 { // some write numbers as strings
		if n, ok := scan.ParseAmount(v.Text); ok && v.Text[0] != '-' {
			u.set(path, n.Units)
		}
	}
	switch {
	case v.Kind == scan.End && l.ends >= 0:
		u.endObject(l.ends)
	case v.Kind == scan.String:
		u.foundString(l, string(v.Text))
	case v.Kind == scan.Boolean:
		u.free = u.free || l.free
	case v.Kind == scan.Number && v.Text[0] != '-':
		if u.free = u.free || l.free; l.of >= 0 {
			u.set(path, v.Amount.Units)
		}
	}
}

func (u *Usage) foundString(l *leaf, text string) {
	switch {
	case l.part && text == "message":
		u.part = triedParts
	case l.part && text == "fallback_message":
		u.part = servedParts
	case l.free && freeObjects[text]:
		u.free = true
	}
	u.hasText = u.hasText || l.text && text != ""
	u.hasUnknown = u.hasUnknown || l.any && text != ""
}

// set notes a number of an object that has not ended.
func (u *Usage) set(path int, n int64) {
	for i := range u.now {
		if u.now[i].path == path {
			u.now[i].n = n
			return
		}
	}
	u.now = append(u.now, number{path, n})
}

func (u *Usage) get(path int) (int64, bool) {
	for _, n := range u.now {
		if n.path == path {
			return n.n, true
		}
	}
	return 0, false
}

// endObject adds the numbers of an object that has ended, as the row tells them of whose members it
// has the most: zeros may be there for the sake of a client that wants other names.
func (u *Usage) endObject(at int) {
	var best *way
	most := 0
	for i := range u.table.ways {
		if w := &u.table.ways[i]; w.object == at {
			n, positive := u.has(w)
			if positive {
				n += int(kinds)
			}
			if n > most {
				best, most = w, n
			}
		}
	}
	var o object
	if best != nil {
		o = u.read(best)
	}
	u.now = slices.DeleteFunc(u.now, func(n number) bool { return u.table.leaves[n.path].of == at })
	switch {
	case best == nil:
		return
	case best.of >= 0:
		u.parts[u.part].add(&o)
		u.part = otherParts
		return
	case best.parts != "":
		o.sum(&u.parts)
		u.parts = [servedParts + 1]object{}
	}
	u.merge(&o)
}

// read returns the numbers of an object as a row tells them.
func (u *Usage) read(w *way) (o object) {
	o.beside, o.outside = w.beside, w.outside
	for k, paths := range w.leaves {
		for _, path := range paths {
			if n, has := u.get(path); has && o.n[k] == 0 {
				o.n[k], o.has[k] = n, true
			}
		}
	}
	return o
}

// has returns how many of a row's members were found, and whether one is positive; 0 if a required one is
// missing.
func (u *Usage) has(w *way) (n int, positive bool) {
	if _, has := u.get(w.needed); w.needed >= 0 && !has {
		return 0, false
	}
	if w.parts != "" && w.of < 0 && u.parts != [servedParts + 1]object{} {
		n, positive = 1, true
	}
	o := u.read(w)
	for _, has := range o.has {
		if has {
			n++
		}
	}
	return n, positive || o.positive()
}

// add adds the numbers of another object.
func (o *object) add(other *object) {
	for k, n := range other.n {
		o.n[k] = min(o.n[k]+n, scan.MaxAmount)
		o.has[k] = o.has[k] || other.has[k]
	}
}

// sum replaces the numbers by the sum of the parts, if they tell any.
func (o *object) sum(parts *[servedParts + 1]object) {
	all := parts[otherParts]
	if attempts := &parts[servedParts]; attempts.positive() {
		all.add(attempts)
	} else {
		all.add(&parts[triedParts])
	}
	if !all.positive() {
		return
	}
	o.replace(&all)
}

// replace replaces numbers by another object's, member by member. A zero replaces a number only if the same
// object tells where that went: as input from or to a cache of which more is told than before, or as other input.
func (o *object) replace(by *object) {
	was := o.n
	grown := func(k kind) int64 {
		if !by.has[k] {
			return 0
		}
		return by.n[k] - was[k]
	}
	kept := false // the total counts a zero that replaces nothing
	for k, has := range by.has {
		zero := by.n[k] == 0
		switch kind(k) {
		case input, moreInput:
			zero = zero && grown(cached)+grown(written) <= 0
		case cached, written:
			zero = zero && grown(cached)+grown(written)+grown(input)+grown(moreInput) < 0
		case total:
			zero = zero || kept && by.n[total] < was[total]
		case output, moreOutput, other, kinds:
		}
		switch {
		case has && zero && was[k] > 0:
			kept = true
		case has:
			o.n[k], o.has[k] = by.n[k], true
		}
	}
	if o.n[input] != was[input] || o.n[output] != was[output] {
		o.has[total] = by.n[total] > 0
	}
}

func (o *object) positive() bool {
	for _, n := range o.n {
		if n > 0 {
			return true
		}
	}
	return false
}

// merge replaces the numbers told before by a later object's, member by member, unless it has none.
func (u *Usage) merge(o *object) {
	if !o.positive() {
		return
	}
	u.known = true
	u.told.replace(o)
	if o.has[cached] || o.has[written] {
		u.told.beside = o.beside
	}
	u.told.outside = o.outside
	_, out, _ := o.split()
	u.toldOutput = u.toldOutput || out > 0
}

// EndText implements [scan.Sink].
func (u *Usage) EndText(last bool) {
	u.endAll()
	switch {
	case u.toldOutput:
		u.texts, u.unknown, u.events = 0, 0, 0
	case u.hasText:
		u.texts++
	case last:
	case u.hasUnknown:
		u.unknown++
	default:
		u.events++
	}
	u.anyText = u.anyText || u.hasText
	u.hasText, u.hasUnknown, u.toldOutput = false, false, false
}

// endAll ends all objects.
func (u *Usage) endAll() {
	for i := len(u.table.ways) - 1; i >= 0 && len(u.now) > 0; i-- { // parts before what they are of
		u.endObject(u.table.ways[i].object)
	}
	u.now, u.part, u.parts = u.now[:0], otherParts, [servedParts + 1]object{}
}

// Tokens returns what the response took. stream is whether it had several texts. request returns the
// input of the request, for a response that does not tell it. known is whether the response told
// anything.
func (u *Usage) Tokens(stream bool, request func() int64) (t Tokens, known bool) {
	u.endAll()
	if u.free && !u.known && !stream {
		return t, true
	}
	n := &u.told.n
	in, out, beside := u.told.split()
	cache := n[cached] + n[written]
	if stream {
		if out += u.texts + u.unknown; !u.anyText { // text that no row knows
			out += u.events
		}
	}
	if in+cache == 0 {
		in = request()
	}
	if !beside {
		in = max(0, in-cache)
	}
	return Tokens{in, n[cached], n[written], out}, u.known
}

// split returns the input and the output that the numbers tell, and whether cached and written input is beside
// that. What includes what, the total says: what is within another makes the sum greater than it. What it has
// beyond the others is output, or all of it input if it is alone.
func (o *object) split() (in, out int64, beside bool) {
	n := &o.n
	in, out = n[input]+n[moreInput], n[output]+n[moreOutput]
	cache := n[cached] + n[written]
	if beside = o.beside || cache > in; !o.has[total] {
		return in, out, beside
	}
	for _, within := range [...]struct{ in, out int64 }{{0, 0}, {0, n[moreOutput]}, {n[moreInput], 0}, {n[moreInput], n[moreOutput]}} {
		if o.outside && within.in+within.out > 0 || within.in > n[input] || within.out > n[output] {
			continue
		}
		switch rest := n[total] - (in - within.in) - (out - within.out); {
		case rest == 0 && cache <= in-within.in:
			return in - within.in, out - within.out, false
		case cache > 0 && (rest == n[cached] || rest == cache):
			return in - within.in, out - within.out, true
		}
	}
	rest := n[total] - in - out
	if beside {
		rest -= cache
	}
	if rest = max(0, rest); in > 0 {
		return in, out + rest, beside
	}
	return rest, out, beside
}
