package follow

import (
	"fmt"
	"time"
)

// lostError is the error of a source whose document is gone. It says what to do, because
// nothing is broken that would come back by itself.
type lostError struct {
	source string // its name
	err    error  // that there is no document
}

func (e *lostError) Error() string {
	const lost = "has lost the document: its rules stay in force; write it again"
	if e.source == "redis" {
		return "Redis " + lost + ": Change these rules on the page, or GET and PUT /rate_limit/rules"
	}
	return fmt.Sprintf("the source of rules %s, or {\"zones\": {}} for the configured ones: %v", lost, e.err)
}

func (e *lostError) Unwrap() error { return e.err }

// repeatLogAfter is the interval at which a persistent error is logged again.
const repeatLogAfter = time.Minute

// failureLine limits a log line about errors of a source: one when they begin, and one a
// minute while they last. The zero value is ready for use.
type failureLine struct {
	last       time.Time // when the line was last written
	about      string    // what it was about
	suppressed int       // errors since then
}

// next reports whether the line may be written, and returns how many errors were not logged
// since the last. about is what the line is about: something else is logged at once.
func (l *failureLine) next(about string, now time.Time) (suppressed int, ok bool) {
	if !l.last.IsZero() && about == l.about && now.Sub(l.last) < repeatLogAfter {
		l.suppressed++
		return 0, false
	}
	suppressed = l.suppressed
	*l = failureLine{last: now, about: about}
	return suppressed, true
}
