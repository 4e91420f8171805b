// Package logs bounds what strangers can make a log grow by.
package logs

import (
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
)

// Error is the field of an error whose text somebody else may have chosen, cut to
// what a person reads.
func Error(err error) zap.Field { return zap.String("error", Short(err)) }

// Short returns the text of an error, cut to what a person reads.
func Short(err error) string {
	const most = 500 // bytes
	s := strings.ToValidUTF8(err.Error(), "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// Limit lets a number of lines a second through and counts the others. The zero
// value is ready.
type Limit struct {
	full       atomic.Int64 // the second in which no more lines may be written
	suppressed atomic.Uint64
	mu         sync.Mutex
	second     int64
	lines      int
}

// Next reports whether a line may be written at an instant in microseconds, most of
// them a second, and how many were not since the last one. Once there were enough
// it takes no lock.
func (l *Limit) Next(now int64, most int) (suppressed uint64, ok bool) {
	second := now / 1_000_000
	if l.full.Load() == second {
		l.suppressed.Add(1)
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if second != l.second {
		l.second, l.lines = second, 0
	}
	if l.lines >= most {
		l.full.Store(second)
		l.suppressed.Add(1)
		return 0, false
	}
	l.lines++
	return l.suppressed.Swap(0), true
}
