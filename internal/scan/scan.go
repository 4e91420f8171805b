// Package scan finds numbers in JSON texts that arrive in pieces, by the names on the way to them.
// It buffers nothing: its memory is bounded whatever the size and the depth of a text, and its time
// is linear in the text, wherever the pieces begin.
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
	JSON           // one text
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
	case media == "application/x-ndjson", media == "application/jsonl":
		return NDJSON
	case media == "text/event-stream":
		return SSE
	}
	return Unknown
}

// Scanner reads a body. Each number at one of the paths is reported when its end was seen; of a text
// with a fault, those before it. Elements of an array at the top of a text are texts of their own.
type Scanner struct {
	machine *machine
	events  stream
	format  Format
}

// New returns a scanner of a body. report is called with the index of the path, and the number; at
// one path there may be several.
func New(format Format, paths *Paths, report func(path int, a Amount)) *Scanner {
	return &Scanner{machine: newMachine(paths, report), format: format}
}

// Write reads a piece of the body. It never fails.
func (s *Scanner) Write(p []byte) (int, error) {
	switch s.format {
	case JSON:
		s.machine.write(p)
	case NDJSON:
		s.writeLines(p)
	case SSE:
		s.writeEvents(p)
	case Unknown:
	}
	return len(p), nil
}

// End says that the body is whole: its last line needs no end.
func (s *Scanner) End() {
	switch s.format {
	case SSE:
		s.endLine()
		s.endEvent()
	case NDJSON:
		s.endText()
	case JSON, Unknown:
	}
}

// Ended reports whether the body said that nothing follows: a stream of events has [DONE], or an
// event message_stop or response.completed. Clients leave then, before the body ends.
func (s *Scanner) Ended() bool { return s.events.over }

// Events returns how many events with data the body had, but for the one that ended it. Of JSON
// lines each is one, and of a JSON text each element of an array at the top.
func (s *Scanner) Events() int {
	if s.format == JSON {
		return s.machine.elements
	}
	return s.events.events
}
