package memory

import (
	"syscall"
	"unsafe"
)

const hugePage = 2 << 20 // bytes, on most processors

// preferHuge advises the kernel to back a chunk that has not been written to
// with huge pages. With small pages, a lookup among millions of keys also
// misses the TLB and the page tables. The range is rounded outwards to whole
// huge pages, so that adjacent chunks leave no gap; other memory in those pages
// is not harmed. Errors are ignored: the advice is optional.
func preferHuge(chunk []int64) {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(chunk))) //nolint:gosec // only the address is used
	to := from + uintptr(len(chunk))*unsafe.Sizeof(chunk[0])
	from, to = from&^(hugePage-1), (to+hugePage-1)&^(hugePage-1)
	_, _, _ = syscall.RawSyscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_HUGEPAGE)
}
