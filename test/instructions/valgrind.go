// Package instructions counts what a request executes. Instructions repeat to a percent on any
// machine, where times do not, so that they can be held.
package instructions

// Requests to callgrind, of callgrind.h.
const (
	callgrindTool = 'C'<<24 | 'T'<<16

	dumpStats  = callgrindTool + 0
	zeroStats  = callgrindTool + 1
	startStats = callgrindTool + 4
	stopStats  = callgrindTool + 5
)

// clientRequest makes a request to valgrind: its code, and up to five arguments.
func clientRequest(args *[6]uint64)

// counting has callgrind count until f returns.
func counting(f func()) {
	clientRequest(&[6]uint64{startStats})
	defer clientRequest(&[6]uint64{stopStats})
	f()
}

// written has callgrind write what f executes.
func written(f func()) {
	clientRequest(&[6]uint64{zeroStats})
	f()
	clientRequest(&[6]uint64{dumpStats})
}
