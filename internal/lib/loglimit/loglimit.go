// Package loglimit limits the size and the rate of log lines and events that clients can cause.
package loglimit

import (
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
)

// Error returns the log field "error" with the text of an error, truncated by [Short].
func Error(err error) zap.Field { return zap.String("error", Short(err)) }

// Short returns the text of an error as valid UTF-8, truncated to 500 bytes.
func Short(err error) string {
	const most = 500 // bytes
	s := strings.ToValidUTF8(err.Error(), "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// Minute limits a log line to one per minute. It takes no lock, which a caller would hold
// while the line is written. The zero value is ready for use.
type Minute struct {
	last atomic.Int64 // microseconds
}

// Next reports whether a line may be written now, in microseconds.
func (m *Minute) Next(now int64) bool {
	last := m.last.Load()
	return now-last > 60_000_000 && m.last.CompareAndSwap(last, now)
}

// Limit limits the number of log lines per second and counts the suppressed ones. The
// zero value is ready for use.
type Limit struct {
	full       atomic.Int64 // the second whose limit is reached
	suppressed atomic.Uint64
	mu         sync.Mutex
	second     int64
	lines      int
}

// Next reports whether a line may be written now, in microseconds, with at most most
// lines per second, and returns the number of lines suppressed since the last one. Once
// the limit is reached, it takes no lock.
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
