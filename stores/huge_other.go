//go:build !linux

package stores

// preferHuge asks for memory in huge pages. It is not known how to do so here.
func preferHuge([]int64) {}
