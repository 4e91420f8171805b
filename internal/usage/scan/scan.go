// Package scan finds numbers and strings in JSON texts that arrive in pieces, by the names on the way
// to them. It buffers nothing: its memory is bounded whatever the size and the depth of a text, and
// its time is linear in the text, wherever the pieces begin.
package scan

import (
	"mime"
	"strings"
)

// Format is how texts follow each other.
type Format uint8

// Formats.
const (
	Unknown Format = iota
	JSON           // texts, most often one
	NDJSON         // a text in each line
	SSE            // server-sent events: a text in the data of each
)

// FormatOf returns the format of a Content-Type.
func FormatOf(contentType string) Format {
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return Unknown
	case media == "application/json", strings.HasSuffix(media, "+json"):
		return JSON
	case media == "application/x-ndjson", media == "application/ndjson", media == "application/jsonl", media == "application/x-jsonlines":
		return NDJSON
	case media == "text/event-stream":
		return SSE
	}
	return Unknown
}

// Kind is what a [Value] is.
type Kind uint8

// Kinds.
const (
	Number Kind = iota
	String
	Boolean
	End // of an object or array in which other paths end
)

// Value is what stands at a path.
type Value struct {
	Kind   Kind   // what it is
	Amount Amount // of a number
	Text   []byte // as it is written, of a string the beginning; valid during the call only
}

// Sink gets what a [Scanner] finds.
type Sink interface {
	// Found gets what stands at a path, when its end was seen. At one path there may be several.
	Found(path int, v Value)

	// EndText is called at the end of each text. last is whether it says that none follows.
	EndText(last bool)
}

// Scanner reads a body. Of a text with a fault, it reports what stands before it. Elements of an
// array at the top of a text are texts of their own.
type Scanner struct {
	machine *machine
	events  stream
	format  Format
	head    []byte // the beginning, until it shows the format
	begun   bool   // it has
}

// New returns a scanner of a body with a Content-Type. What the body is, its beginning says rather
// than its type.
func New(contentType string, paths *Paths, sink Sink) *Scanner {
	return &Scanner{machine: newMachine(paths, sink), format: FormatOf(contentType), head: make([]byte, 0, len(byteOrderMark)+longestField)}
}

// Write reads a piece of the body. It never fails.
func (s *Scanner) Write(p []byte) (int, error) {
	n := len(p)
	for ; !s.begun && len(p) > 0; p = p[1:] {
		if s.head = append(s.head, p[0]); s.recognize() {
			s.read(s.head)
		}
	}
	s.read(p)
	return n, nil
}

func (s *Scanner) read(p []byte) {
	switch s.format {
	case JSON:
		s.machine.write(p)
	case NDJSON:
		s.writeLines(p)
	case SSE:
		s.writeEvents(p)
	case Unknown:
	}
}

const byteOrderMark = "\xef\xbb\xbf"

// fields are the fields with which server-sent events begin. A comment has no name.
var fields = []string{":", "data:", "event:", "retry:", "id:"}

const longestField = len("retry:")

// recognize finds the format in the beginning. It returns false if it needs more of it.
func (s *Scanner) recognize() bool {
	if string(s.head) == byteOrderMark || len(s.head) == 1 && isSpace(s.head[0]) {
		s.head = s.head[:0]
		return false
	}
	text := string(s.head)
	more := strings.HasPrefix(byteOrderMark, text)
	for _, f := range fields {
		if f == text {
			s.format, s.begun = SSE, true
			return true
		}
		more = more || strings.HasPrefix(f, text)
	}
	if more {
		return false
	}
	if s.begun = true; (text[0] == '{' || text[0] == '[') && s.format != NDJSON {
		s.format = JSON
	}
	s.machine.many = s.format == JSON
	return true
}

// End says that the body is whole: its last line needs no end.
func (s *Scanner) End() {
	if !s.begun {
		s.begun = true
		s.read(s.head)
	}
	switch s.format {
	case SSE:
		s.endLine()
		s.endEvent()
	case NDJSON:
		s.endLineOfText()
	case JSON, Unknown:
	}
}

// Format returns the format of the body, as far as it is known.
func (s *Scanner) Format() Format { return s.format }

// Ended reports whether the body said that nothing follows. Clients leave then, before it ends.
func (s *Scanner) Ended() bool { return s.machine.over }

// Streams reports whether the body is more than one text: events, lines, or elements of an array.
func (s *Scanner) Streams() bool { return s.format == SSE || s.format == NDJSON || s.machine.several }
