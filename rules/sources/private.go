package sources

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/dianalimiter/diana/rules"
)

// newTransport returns the transport of an HTTP source. Without TLS it connects only to
// private addresses, and uses no proxy: what a proxy dials would not be known.
func newTransport(tls bool) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if !tls {
		d := &net.Dialer{Timeout: rules.FetchTimeout, KeepAlive: 30 * time.Second, Control: onlyPrivate}
		t.Proxy, t.DialContext = nil, d.DialContext
	}
	return t
}

// onlyPrivate rejects an address that a socket is about to connect to, unless it is private or
// of this machine. The name was resolved before, so that it does not matter what it
// resolves to another time (DNS rebinding).
func onlyPrivate(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%s: not an address", address)
	}
	return checkPrivate(at.Addr())
}

func checkPrivate(addr netip.Addr) error {
	if addr = addr.Unmap(); addr.IsPrivate() || addr.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s: not a private address: want https", addr)
}
