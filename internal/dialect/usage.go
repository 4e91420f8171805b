package dialect

import (
	"slices"

	"github.com/dianalimiter/diana/internal/scan"
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
	texts, events       int64
	anyText             bool
}

// object has the numbers of an object.
type object struct {
	n      [kinds]int64
	has    [kinds]bool
	beside bool // as in row
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
// has the most.
func (u *Usage) endObject(at int) {
	var best *way
	most := 0
	for i := range u.table.ways {
		if w := &u.table.ways[i]; w.object == at {
			if n := u.has(w); n > most {
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
	o.beside = w.beside
	for k, paths := range w.leaves {
		for _, path := range paths {
			if n, has := u.get(path); has && !o.has[k] {
				o.n[k], o.has[k] = n, true
			}
		}
	}
	return o
}

// has returns how many of a row's members were found; 0 if a required one is missing.
func (u *Usage) has(w *way) (n int) {
	if _, has := u.get(w.needed); w.needed >= 0 && !has {
		return 0
	}
	if w.parts != "" && w.of < 0 && u.parts != [servedParts + 1]object{} {
		n++
	}
	for _, paths := range w.leaves {
		for _, path := range paths {
			if _, has := u.get(path); has {
				n++
				break
			}
		}
	}
	return n
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
	for k, has := range all.has {
		if has {
			o.n[k], o.has[k] = all.n[k], true
		}
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
	if t := &u.told; o.has[input] || o.has[output] {
		t.has[total] = false
	}
	for k, has := range o.has {
		if has {
			u.told.n[k], u.told.has[k] = o.n[k], true
		}
	}
	if o.has[cached] || o.has[written] {
		u.told.beside = o.beside
	}
	u.toldOutput = u.toldOutput || o.n[output]+o.n[moreOutput] > 0 || o.n[total] > o.n[input]
}

// EndText implements [scan.Sink].
func (u *Usage) EndText(last bool) {
	u.endAll()
	switch {
	case u.toldOutput:
		u.texts, u.events = 0, 0
	case last:
	case u.hasText:
		u.texts++
	default:
		u.events++
	}
	u.anyText = u.anyText || u.hasText
	u.hasText, u.toldOutput = false, false
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
	in, out, cache := n[input]+n[moreInput], n[output]+n[moreOutput], n[cached]+n[written]
	beside := u.told.beside || cache > in
	if u.told.has[total] {
		rest := n[total] - in - out
		switch {
		case rest == 0 && cache <= in:
			beside = false
		case cache > 0 && (rest == n[cached] || rest == cache):
			beside, rest = true, 0
		case beside:
			rest -= cache
		}
		if rest = max(0, rest); in > 0 {
			out += rest
		} else {
			in = rest
		}
	}
	switch {
	case !stream:
	case u.anyText:
		out += u.texts
	default: // text that no row knows
		out += u.events
	}
	if in+cache == 0 {
		in = request()
	}
	if !beside {
		in = max(0, in-cache)
	}
	return Tokens{in, n[cached], n[written], out}, u.known
}
