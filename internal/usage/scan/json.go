package scan

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// machine reads a JSON text that arrives in pieces. Of containers that no path leads into only
// brackets are counted. It keeps the container of each depth that a path has, the name or number
// that it is reading, and nothing else.
type machine struct {
	paths *Paths
	sink  Sink
	many  bool // texts follow each other without anything around them

	state  state
	frames []frame // containers that paths may lead into
	target *node   // of the value that follows; nil: no path leads there
	skips  int     // depth of brackets in a container that is skipped
	before byte    // what stands before the next string in it, but for white space, as far as it was read

	keeps   bool   // the string is at a place that matters
	text    []byte // the name, number or string as it is written, as far as it was read
	tooLong bool   // text has only its beginning, and is longer than what counts

	several bool // it is not the only text
	signs   sign // of the last text of a stream, as far as this one was read
	over    bool // the last text of a stream has ended
}

// frame is a container.
type frame struct {
	node  *node // nil: no path leads into it
	array bool
	index int  // of the member of an array that was read last
	top   bool // an array whose members are documents of their own
}

type state uint8

const (
	atValue       state = iota // a value must follow, or the array ends
	atName                     // a name must follow, or the object ends
	atColon                    // a colon must follow
	inString                   // a name
	inEscape                   // after a backslash in it
	inScalar                   // a number, true, false or null that a path leads to
	inOther                    // any other
	afterValue                 // a comma or the end of the container must follow
	skipping                   // in a container that no path leads into
	skippedString              // in a string there, or in a string value
	skippedEscape              // after a backslash in it
	done                       // nothing but white space may follow
	faulty                     // the rest of the text does not count
)

// escape is the longest escape, such as \u0061. A byte of a name takes no more.
const escape = 6

func newMachine(paths *Paths, sink Sink) *machine {
	m := &machine{paths: paths, sink: sink}
	m.frames = make([]frame, 0, paths.deepest+1)
	m.text = make([]byte, 0, max(escape*paths.longest, maxText))
	m.begin()
	return m
}

// begin begins another text.
func (m *machine) begin() {
	m.state, m.frames, m.target = atValue, m.frames[:0], &m.paths.root
}

// endText ends a text, perhaps a truncated one. last is whether it is known to end the stream.
func (m *machine) endText(last bool) {
	last = last || m.signs.last()
	m.over, m.signs = m.over || last, 0
	m.sink.EndText(last)
}

// write reads a piece of the text.
func (m *machine) write(p []byte) {
	for len(p) > 0 {
		switch m.state {
		case faulty:
			return
		case skipping:
			p = m.skip(p)
		case skippedString:
			p = m.skipString(p)
		case skippedEscape:
			m.state, p = skippedString, p[1:]
		case inString, inEscape:
			p = m.readString(p)
		case inScalar, inOther:
			p = m.readScalar(p)
		default:
			if c := p[0]; !isSpace(c) {
				m.step(c)
			}
			p = p[1:]
		}
	}
}

// step reads a byte between values and names.
func (m *machine) step(c byte) {
	switch m.state {
	case atValue:
		n := len(m.frames)
		switch {
		case n == 0 && isMark(c):
		case c == ']' && n > 0 && m.frames[n-1].array: // perhaps after a comma
			m.leave()
		default:
			m.value(c)
		}
	case atName:
		switch c {
		case '"':
			m.state = inString
			m.restart()
		case '}': // perhaps after a comma, which some write after the last member
			m.leave()
		default:
			m.state = faulty
		}
	case atColon:
		if m.state = atValue; c != ':' {
			m.state = faulty
		}
	case afterValue:
		m.after(c)
	default: // done
		if isMark(c) {
			return
		}
		if m.state = faulty; m.many && (c == '{' || c == '[') {
			m.several = true
			m.begin()
			m.value(c)
		}
	}
}

// isSpace reports whether a byte is white space between texts. A record separator is (RFC 7464).
func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == 0x1e }

// isMark reports whether a byte is of a byte order mark, which may stand before each text.
func isMark(c byte) bool {
	return c == byteOrderMark[0] || c == byteOrderMark[1] || c == byteOrderMark[2]
}

// value begins a value. Words that JSON does not have, such as the NaN of some encoders, are values too: they
// tell nothing, and what follows them counts.
func (m *machine) value(c byte) {
	switch {
	case c == '{' || c == '[':
		m.enter(c == '[')
	case c == '"':
		m.state, m.skips, m.keeps = skippedString, 0, m.target.matters()
		m.restart()
	case isScalar(c):
		m.state = inOther
		if m.target.matters() {
			m.state = inScalar
			m.restart()
			m.add(c)
		}
	default:
		m.state = faulty
	}
}

// enter begins a container.
func (m *machine) enter(array bool) {
	top := array && len(m.frames) == 0
	if !top && (m.target == nil || m.target.children == nil) {
		m.state, m.skips, m.before = skipping, 1, '{'
		if array {
			m.before = '['
		}
		return
	}
	m.frames = append(m.frames, frame{node: m.target, array: array, index: -1, top: top})
	m.state = atName
	if array {
		m.state = atValue
		m.next()
	}
}

// leave ends a container.
func (m *machine) leave() {
	f := m.frames[len(m.frames)-1]
	m.frames = m.frames[:len(m.frames)-1]
	switch {
	case f.top:
		m.state = done
		return
	case f.node.matters():
		m.found(f.node, Value{Kind: End})
	}
	m.ended()
}

// found reports what stands at a place that matters.
func (m *machine) found(at *node, v Value) {
	if at.sign != 0 && at.sign.in(v) {
		m.signs |= at.sign
	}
	if at.path >= 0 {
		m.sink.Found(at.path, v)
	}
}

// ended is what follows the end of a value.
func (m *machine) ended() {
	m.state = afterValue
	switch len(m.frames) {
	case 0:
		m.state = done
	case 1:
		if !m.frames[0].top {
			return
		}
		m.several = true
	default:
		return
	}
	if m.many {
		m.endText(false)
	}
}

// after reads what follows a value in a container.
func (m *machine) after(c byte) {
	f := &m.frames[len(m.frames)-1]
	switch {
	case c == ',' && f.array:
		m.state = atValue
		m.next()
	case c == ',':
		m.state = atName
	case c == ']' && f.array, c == '}' && !f.array:
		m.leave()
	default:
		m.state = faulty
	}
}

// next goes on to the next member of an array.
func (m *machine) next() {
	f := &m.frames[len(m.frames)-1]
	f.index++
	if m.target = f.node; !f.top {
		var digits [20]byte
		if m.target = f.node.children[string(strconv.AppendInt(digits[:0], int64(f.index), 10))]; m.target == nil {
			m.target = f.node.children[each]
		}
	}
}

func (m *machine) restart() { m.text, m.tooLong = m.text[:0], false }

func (m *machine) add(c byte) {
	if len(m.text) == cap(m.text) {
		m.tooLong = true
		return
	}
	m.text = append(m.text, c)
}

// skip reads what stands in a container that no path leads into.
func (m *machine) skip(p []byte) []byte {
	for i, c := range p {
		switch c {
		case '"':
			m.state = skippedString
			if m.keeps = m.target.matters() && isBeforeValue(last(p[:i], m.before)); m.keeps {
				m.restart()
			}
			return p[i+1:]
		case '{', '[':
			m.skips++
		case '}', ']':
			if m.skips--; m.skips == 0 {
				m.ended()
				return p[i+1:]
			}
		}
	}
	m.before = last(p, m.before)
	return nil
}

// last returns the last byte that is no white space; or else another.
func last(p []byte, other byte) byte {
	for i := len(p) - 1; i >= 0; i-- {
		if !isSpace(p[i]) {
			return p[i]
		}
	}
	return other
}

// isBeforeValue reports whether a string after a byte is no name. It may be one after a comma.
func isBeforeValue(c byte) bool { return c == ':' || c == '[' }

// skipString reads a string there, or a string value. It searches for each quotation mark
// once, however many escapes precede it.
func (m *machine) skipString(p []byte) []byte {
	end := bytes.IndexByte(p, '"')
	until := p
	if end >= 0 {
		until = p[:end]
	}
	if m.keeps {
		m.text = append(m.text, until[:min(len(until), cap(m.text)-len(m.text))]...)
	}
	for at := 0; ; {
		i := bytes.IndexByte(until[at:], '\\')
		if i < 0 {
			break
		}
		if at += i + 2; at > len(until) { // it escapes the quotation mark, or the next piece begins with what it escapes
			m.state = skippedEscape
			return p[at-1:]
		}
	}
	if end < 0 {
		return nil
	}
	m.state, m.before = skipping, '"'
	if m.keeps {
		m.keeps = false
		m.found(m.target, Value{Kind: String, Text: m.text})
	}
	if m.skips == 0 {
		m.ended()
	}
	return p[end+1:]
}

// readString reads a name.
func (m *machine) readString(p []byte) []byte {
	for i, c := range p {
		switch {
		case m.state == inEscape:
			m.state = inString
		case c == '"':
			m.nameEnded()
			return p[i+1:]
		case c == '\\':
			m.state = inEscape
		case c < ' ':
			m.state = faulty
			return nil
		}
		m.add(c)
	}
	return nil
}

// nameEnded chooses where the value of the name leads.
func (m *machine) nameEnded() {
	m.state = atColon
	children := m.frames[len(m.frames)-1].node.children
	m.target = children[unnamed]
	if m.tooLong {
		return
	}
	named := children[string(m.text)]
	if bytes.IndexByte(m.text, '\\') >= 0 {
		var name string
		if json.Unmarshal([]byte(`"`+string(m.text)+`"`), &name) != nil {
			m.state = faulty
			return
		}
		named = children[name]
	}
	if named != nil {
		m.target = named
	}
}

// readScalar reads a number, true, false or null.
func (m *machine) readScalar(p []byte) []byte {
	for i, c := range p {
		if !isScalar(c) {
			m.scalarEnded()
			return p[i:]
		}
		if m.state == inScalar {
			m.add(c)
		}
	}
	return nil
}

func isScalar(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '+' || c == '-' || c == '.'
}

// scalarEnded reports a number, true or false that a path leads to. Its end was seen.
func (m *machine) scalarEnded() {
	if m.state == inScalar && !m.tooLong {
		a, isNumber := ParseAmount(m.text)
		switch text := string(m.text); {
		case isNumber:
			m.found(m.target, Value{Kind: Number, Amount: a, Text: m.text})
		case text == "true" || text == "false":
			m.found(m.target, Value{Kind: Boolean, Text: m.text})
		}
	}
	m.ended()
}
