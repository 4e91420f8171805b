package scan

import (
	"bytes"
	"strings"
)

// writeLines reads lines, each of which is a text.
func (s *Scanner) writeLines(p []byte) {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			s.machine.write(p)
			return
		}
		s.machine.write(p[:end])
		s.endLineOfText()
		p = p[end+1:]
	}
}

// endLineOfText ends the text of a line. A blank line has none.
func (s *Scanner) endLineOfText() {
	if m := s.machine; m.state != atValue || len(m.frames) > 0 {
		m.endText(false)
	}
	s.machine.begin()
}

// stream is a stream of server-sent events, as far as it was read.
type stream struct {
	part  part
	field field
	text  []byte // beginning of the name of the field, or of its value
	isCR  bool   // the byte before ended a line: a line feed belongs to it
	lines int    // of data in the event
	last  bool   // no event follows this one
}

type part uint8

const (
	inName  part = iota // of a field, before the colon
	atSpace             // after it, where a space does not count
	inValue
)

type field uint8

const (
	other field = iota
	data
	event
)

// longestValue is how much of a value is compared: the longest name of a last event, and a byte.
const longestValue = len("conversation.response.error") + 1

// writeEvents reads server-sent events as https://html.spec.whatwg.org/multipage/server-sent-events.html
// has them. The data of an event is a text, of several lines if there are several.
func (s *Scanner) writeEvents(p []byte) {
	e := &s.events
	for len(p) > 0 {
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			s.readLine(p)
			return
		}
		if end > 0 {
			s.readLine(p[:end])
		}
		if isLF := p[end] == '\n'; !isLF || !e.isCR {
			s.endLine()
			e.isCR = !isLF
		} else {
			e.isCR = false
		}
		p = p[end+1:]
	}
}

// readLine reads a piece of a line.
func (s *Scanner) readLine(p []byte) {
	e := &s.events
	for e.isCR = false; e.part == inName; p = p[1:] {
		if len(p) == 0 {
			return
		}
		if p[0] == ':' {
			e.part, e.field = atSpace, fieldOf(e.text)
			e.text = e.text[:0]
			continue
		}
		s.keep(p[:1])
	}
	if e.part == atSpace && len(p) > 0 {
		e.part = inValue
		p = bytes.TrimPrefix(p, []byte(" "))
	}
	s.keep(p)
	if e.field == data {
		s.machine.write(p)
	}
}

// keep keeps the part of a name or a value that is compared.
func (s *Scanner) keep(p []byte) {
	e := &s.events
	e.text = append(e.text, p[:min(len(p), longestValue-len(e.text))]...)
}

func fieldOf(name []byte) field {
	switch strings.TrimPrefix(string(name), byteOrderMark) { // of a stream that was put together

	case "data":
		return data
	case "event":
		return event
	}
	return other
}

// endLine ends a line. An empty one ends the event.
func (s *Scanner) endLine() {
	e := &s.events
	if e.part == inName {
		if len(e.text) == 0 {
			s.endEvent()
			return
		}
		e.field = fieldOf(e.text) // without a value
		e.text = e.text[:0]
	}
	switch value := string(bytes.TrimSpace(e.text)); e.field {
	case data:
		e.last = e.last || value == lastData
		e.lines++
		s.machine.write([]byte("\n"))
	case event:
		e.last = e.last || lastNames[value]
	case other:
	}
	e.part, e.text = inName, e.text[:0]
}

func (s *Scanner) endEvent() {
	e := &s.events
	if e.lines > 0 {
		s.machine.endText(e.last)
	}
	e.lines, e.last = 0, false
	s.machine.begin()
}
