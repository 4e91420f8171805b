package routes

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Request describes a request as a server receives it.
type Request struct {
	Method, URI, Host, Proto string // Proto as in http.Request: HTTP/2.0

	Header http.Header   // without Host
	Body   io.ReadCloser // not nil
	Length int64         // of the body

	RemoteIP, RemotePort string               // of the connection
	TLS                  *tls.ConnectionState // see [TLS]; nil: there is none
}

// TLS returns the state of a connection by TLS to a host, as current clients make one: complete,
// and without a certificate of the client.
func TLS(host, proto string) *tls.ConnectionState {
	s := &tls.ConnectionState{
		HandshakeComplete: true, Version: tls.VersionTLS13, CipherSuite: tls.TLS_AES_128_GCM_SHA256, ServerName: host,
		NegotiatedProtocol: map[string]string{"HTTP/2.0": "h2", "HTTP/3.0": "h3"}[proto],
	}
	if s.NegotiatedProtocol == "" {
		s.NegotiatedProtocol = "http/1.1"
	}
	if _, err := netip.ParseAddr(host); err == nil { // clients name no addresses
		s.ServerName = ""
	}
	return s
}

// HTTP returns the request for the handlers of a server.
func (d *Request) HTTP(ctx context.Context) *http.Request {
	u, err := url.ParseRequestURI(d.URI)
	if err != nil {
		u = &url.URL{Path: d.URI}
	}
	r := &http.Request{
		Method: d.Method, URL: u, Host: d.Host, RequestURI: d.URI, Proto: d.Proto, Header: d.Header, Body: d.Body, ContentLength: d.Length,
		RemoteAddr: net.JoinHostPort(d.RemoteIP, cmp.Or(d.RemotePort, "0")), TLS: d.TLS,
	}
	r.ProtoMajor, r.ProtoMinor, _ = http.ParseHTTPVersion(d.Proto)
	return r.WithContext(ctx)
}

// local is the server's address that a request was sent to: the listener's address with the port of
// the host. If it listens on all addresses, the address is the host's or the client's.
type local struct {
	s *caddyhttp.Server
	r *http.Request
}

// Network implements net.Addr.
func (local) Network() string { return "tcp" }

// String implements net.Addr.
func (l local) String() string {
	host := &url.URL{Host: l.r.Host}
	port := cmp.Or(host.Port(), Ports[map[bool]string{true: "https", false: "http"}[l.r.TLS != nil]])
	n, _ := strconv.ParseUint(port, 10, 16)
	var listens []caddy.NetworkAddress
	for _, text := range l.s.Listen {
		if a, err := caddy.ParseNetworkAddress(text); err == nil {
			listens = append(listens, a)
		}
	}
	if len(listens) == 0 {
		return ":" + port
	}
	within := func(a caddy.NetworkAddress) bool { return a.StartPort <= uint(n) && uint(n) <= a.EndPort }
	a := listens[max(0, slices.IndexFunc(listens, within))]
	if a.IsUnixNetwork() {
		return a.Host
	}
	if !within(a) && a.StartPort > 0 { // behind a port that is forwarded
		port = strconv.FormatUint(uint64(a.StartPort), 10)
	}
	remote, _, _ := net.SplitHostPort(l.r.RemoteAddr)
	for _, text := range []string{a.Host, host.Hostname(), remote} {
		if ip, err := netip.ParseAddr(text); err == nil && !ip.IsUnspecified() && (text != remote || ip.IsLoopback()) {
			return net.JoinHostPort(text, port)
		}
	}
	return net.JoinHostPort("0.0.0.0", port)
}
