//go:build !unix

package benchtest

import "time"

// cpuTime is not known here; nothing is reported.
func cpuTime() time.Duration { return 0 }
