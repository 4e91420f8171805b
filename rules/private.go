package rules

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// newTransport returns the transport of an HTTP source. Without TLS it connects only to
// private addresses, and uses no proxy: what a proxy dials would not be known.
func newTransport(tls bool) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if !tls {
		d := &net.Dialer{Timeout: fetchTimeout, KeepAlive: 30 * time.Second, Control: onlyPrivate}
		t.Proxy, t.DialContext = nil, d.DialContext
	}
	return t
}

// onlyPrivate rejects an address that a socket is about to connect to, unless it is in
// Caddy's private_ranges. The name was resolved before, so that it does not matter what it
// resolves to another time (DNS rebinding).
func onlyPrivate(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%s: not an address", address)
	}
	return checkPrivate(at.Addr())
}

func checkPrivate(addr netip.Addr) error {
	addr = addr.Unmap()
	for _, text := range caddyhttp.PrivateRangesCIDR() { // of prefixes and addresses
		if p, err := netip.ParsePrefix(text); err == nil && p.Contains(addr) {
			return nil
		}
		if a, err := netip.ParseAddr(text); err == nil && a == addr {
			return nil
		}
	}
	return fmt.Errorf("%s: not a private address: want https", addr)
}
