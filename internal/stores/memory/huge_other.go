//go:build !linux

package memory

// preferHuge does nothing: huge pages are only requested on Linux.
func preferHuge([]int64) {}
