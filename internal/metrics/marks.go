package metrics

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

// maxMarks is how many marks are kept. A store that comes and goes makes more in the time
// that the history covers.
const maxMarks = 64

// Marks are the last marks of the process. The zero value is ready for use.
type Marks struct {
	mu   sync.Mutex
	list []Mark
}

// Add adds a mark. If there are too many, the oldest is dropped.
func (m *Marks) Add(k Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.list) == maxMarks {
		m.list = slices.Delete(m.list, 0, 1)
	}
	m.list = append(m.list, k)
}

// Since returns the marks after an instant, oldest first.
func (m *Marks) Since(t time.Time) []Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []Mark{}
	for _, k := range m.list {
		if k.At.After(t) {
			list = append(list, k)
		}
	}
	return list
}
