package placeholders

import "strings"

// Forwarding reports whether a header tells the address of a client whose request a proxy, a load
// balancer or a CDN passes on. Any client can send one, and a proxy may add ports and addresses.
func Forwarding(header string) bool {
	name := strings.ReplaceAll(strings.ToLower(header), "_", "-")
	return forwarding[name] || strings.Contains(name, "forwarded-for") ||
		strings.HasSuffix(name, "-ip") || strings.HasSuffix(name, "clientip") || strings.HasSuffix(name, "socketip") || strings.HasSuffix(name, "realip") || strings.HasSuffix(name, "remote-addr")
}

var forwarding = set(`forwarded x-forwarded cf-connecting-ipv6 cf-pseudo-ipv4 cloudfront-viewer-address x-envoy-external-address
	x-remote-address x-client-address x-real-address x-host-ip-address x-originating-address x-proxyuser-ip x-coming-from`)
