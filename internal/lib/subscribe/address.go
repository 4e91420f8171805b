package subscribe

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

const defaultPort = "6379"

// ParseURL parses the URL of a Redis, and reports whether it is one. Its host is required, and its default port 6379.
// Otherwise it is as in go-redis.
func ParseURL(text string) (o *redis.Options, ok bool) {
	u, err := url.Parse(text)
	if err != nil || strings.Contains(text, "#") { // a password that contains it ends the host's name
		return nil, false
	}
	o, err = redis.ParseURL(text)
	if err != nil {
		return nil, false
	}
	if u.Scheme == "unix" {
		if u.Host != "" {
			return nil, false
		}
		return o, true
	}
	if !isHost(u.Hostname()) || !isPort(cmp.Or(u.Port(), defaultPort)) {
		return nil, false
	}
	return o, true
}

// HostPort returns a host with the port after it, or with port 6379. It reports whether the address is one of these.
func HostPort(address string) (addr string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil { // there is no port
		if host = address; strings.HasPrefix(address, "[") && strings.HasSuffix(address, "]") {
			host = address[1 : len(address)-1]
		}
		port = ""
	}
	port = cmp.Or(port, defaultPort)
	return net.JoinHostPort(host, port), isHost(host) && isPort(port)
}

// aHost matches names of hosts, also such as Docker has, but no numbers.
var aHost = regexp.MustCompile(`^([\pL\pN_-]+\.)*[\pL\pN_-]*[\pL_-][\pL\pN_-]*\.?$`)

// isHost reports whether s may be the name or the address of a host.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return aHost.MatchString(s)
}

// isPort reports whether s is the number of a port.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}
