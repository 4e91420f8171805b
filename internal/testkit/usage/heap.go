package usage

import "runtime"

// HeapAlloc returns the bytes in use after garbage collection.
func HeapAlloc() uint64 {
	runtime.GC()
	runtime.GC() // completes the sweep of the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
