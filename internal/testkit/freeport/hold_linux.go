package freeport

import "syscall"

// hold reserves a port by a socket that is bound to it and does not listen. Another
// process that looks for a port cannot bind one, which hold requires. A server can listen
// beside it: servers set SO_REUSEADDR, and so does the socket, but only once it is bound.
func hold(port int) bool {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	if syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) != nil ||
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) != nil {
		_ = syscall.Close(fd)
		return false
	}
	return true // open until the process ends
}
