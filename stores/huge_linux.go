package stores

import (
	"syscall"
	"unsafe"
)

const hugePage = 2 << 20 // of most processors

// preferHuge asks for memory in huge pages, which it has not been written to
// yet. With small ones, finding one of millions of keys waits for the tables of
// pages, too. Pages at its ends may hold something else as well, which lies in a
// huge page as good as in any other: so chunks side by side have no seams. Where
// the system refuses, nothing is lost.
func preferHuge(chunk []int64) {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(chunk))) //nolint:gosec // only the address is taken
	to := from + uintptr(len(chunk))*unsafe.Sizeof(chunk[0])
	from, to = from&^(hugePage-1), (to+hugePage-1)&^(hugePage-1)
	_, _, _ = syscall.RawSyscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_HUGEPAGE)
}
