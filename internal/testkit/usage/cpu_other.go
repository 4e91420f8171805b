//go:build !unix

package usage

import "time"

// cpuTime is not available on this system. Nothing is reported.
func cpuTime() time.Duration { return 0 }
