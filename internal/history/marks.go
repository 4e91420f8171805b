package history

import (
	"slices"
	"sync"
	"time"
)

// Kinds of marks.
const (
	MarkStarted = "started" // the process started
	MarkReload  = "reload"  // another configuration runs
	MarkRules   = "rules"   // the rule source changed rules
	MarkDown    = "down"    // a store became unavailable
	MarkUp      = "up"      // a store is used again
)

// Mark is an event that explains a change of the curves, as the admin API answers it.
type Mark struct {
	At   time.Time `json:"at"`              // when it happened
	Kind string    `json:"kind"`            // started, reload, rules, down or up
	Name string    `json:"name,omitempty"`  // the store, or the kind of the rule source
	Zone []string  `json:"zones,omitempty"` // the zones concerned, at most ten; none: all
	Text string    `json:"text,omitempty"`  // more, such as the error
}

// maxMarks is how many marks are kept, however old. A store that comes and goes makes more in
// the time that the history covers.
const maxMarks = 64

// Marks are the last marks of the process. The zero value is ready for use.
type Marks struct {
	mu    sync.Mutex
	list  []Mark
	added int // so far
}

// Add adds a mark. If there are too many, the oldest is dropped.
func (m *Marks) Add(k Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) == maxMarks {
		m.list = slices.Delete(m.list, 0, 1)
	}
	m.list = append(m.list, k)
	m.added++
}

// After returns the marks after the first n, as far as they are kept, and how many there were
// so far.
func (m *Marks) After(n int) (list []Mark, added int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Mark{}, m.list[max(0, len(m.list)-(m.added-n)):]...), m.added
}
