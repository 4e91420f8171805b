package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/rules"
)

// provisioned returns a source that is provisioned.
func provisioned(t *testing.T, h *HTTP) *HTTP {
	t.Helper()
	if err := h.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestHTTPDialsAsItsProcess reads a document in a process that dials by itself.
func TestHTTPDialsAsItsProcess(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer srv.Close()
	dialed := ""
	p := &process.Process{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed = address
		return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
	}}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: process.With(t.Context(), p)})
	defer cancel()
	h := &HTTP{URL: "http://10.1.2.3/rules"}
	if err := h.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	defer h.client.CloseIdleConnections()
	text, err := h.Fetch(ctx)
	if err != nil || string(text) != "{}" || dialed != "10.1.2.3:80" {
		t.Errorf("%q, %v, dialed %q", text, err, dialed)
	}
}

// TestHTTPHeaders checks that headers are sent with every request, that a token is read
// again for each, and that no error has a value.
func TestHTTPHeaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("RULES_TEAM", "blue")
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		fmt.Fprint(w, `{"zones": {}}`)
	}))
	defer srv.Close()
	write("canary-1")
	h := provisioned(t, &HTTP{URL: srv.URL, Headers: http.Header{
		"authorization": {"Bearer {file." + path + "}"}, "X-Team": {"{env.RULES_TEAM}", "red"}, "accept": {"text/plain"},
	}})
	for _, token := range []string{"canary-1", "canary-2"} {
		write(token)
		if _, err := h.Fetch(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got.Get("Authorization") != "Bearer "+token || fmt.Sprint(got.Values("X-Team")) != "[blue red]" || fmt.Sprint(got.Values("Accept")) != "[text/plain]" {
			t.Errorf("%v", got)
		}
	}
	for _, wrong := range []string{"", "canary\nX: y", "canary\x00"} {
		write(wrong)
		if _, err := h.Fetch(context.Background()); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	for name, want := range map[string]string{
		"a b": `header "a b": want a name`, "": `header "": want a name`, "Host": "header Host: HTTP sets it itself",
		"if-none-match": "header if-none-match: HTTP sets it itself", "Content-Length": "HTTP sets it itself", "Accept-Encoding": "HTTP sets it itself",
		"X\r\nY": "want a name", "X-Token": "header X-Token {env.NO_SUCH}: the placeholder resolves to nothing",
	} {
		value := "canary"
		if name == "X-Token" {
			value = "{env.NO_SUCH}"
		}
		err := (&HTTP{URL: "https://rules.example.com", Headers: http.Header{name: {value}}}).Provision(caddy.Context{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

// TestHTTPCutDocument reads a document of which a server has sent a part, whose end is that of the connection: it is read
// again as a whole, though the ETag says that it is the same.
func TestHTTPCutDocument(t *testing.T) {
	const document = `{"zones": {"a": {}}}`
	cut := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := document
		switch {
		case cut:
			text = document[:9]
		case r.Header.Get("If-None-Match") == `"1"`:
			w.WriteHeader(http.StatusNotModified)
			return
		}
		c, _, err := w.(http.Hijacker).Hijack() //nolint:forcetypeassert // of this server
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(c, "HTTP/1.0 200 OK\r\nETag: \"1\"\r\n\r\n%s", text)
		_ = c.Close()
	}))
	defer srv.Close()
	h := provisioned(t, &HTTP{URL: srv.URL})
	if text, err := h.Fetch(t.Context()); string(text) != document[:9] || err != nil {
		t.Fatalf("%q, %v", text, err)
	}
	cut = false
	if text, err := h.Fetch(t.Context()); string(text) != document || err != nil {
		t.Errorf("after a part: %q, %v, want all", text, err)
	}
	if _, err := h.Fetch(t.Context()); !errors.Is(err, rules.ErrUnchanged) {
		t.Errorf("after the whole: %v, want that it is unchanged", err)
	}
}

// nameServer makes every name resolve to what addresses returns, by a real DNS server.
func nameServer(t *testing.T, addresses func() netip.Addr) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	was := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() { _ = conn.Close(); net.DefaultResolver = was })
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(answerDNS(b[:n], addresses()), from)
		}
	}()
}

// answerDNS returns the response (RFC 1035, section 4.1) to a query with one question: an
// address to one of type A, nothing to others.
func answerDNS(query []byte, address netip.Addr) []byte {
	end := 12 + bytes.IndexByte(query[12:], 0) + 1 + 4 // of the question, behind name, type and class
	response := slices.Concat(query[:2], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end])
	if query[end-3] == 1 {
		response[7] = 1
		response = append(response, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4) // the question's name, A, IN, a TTL of 0, 4 bytes
		response = append(response, address.AsSlice()...)
	}
	return response
}

// TestHTTPPrivateAddresses checks that the address that is dialled decides, whatever the
// name resolved to before.
func TestHTTPPrivateAddresses(t *testing.T) {
	var public atomic.Bool
	nameServer(t, func() netip.Addr {
		if public.Load() {
			return netip.MustParseAddr("203.0.113.1")
		}
		return netip.MustParseAddr("127.0.0.1")
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, `{"zones": {}}`)
	}))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	h := provisioned(t, &HTTP{URL: "http://rules.test:" + port + "/x"})
	if _, err := h.Fetch(context.Background()); err != nil {
		t.Fatalf("a private address: %v", err)
	}
	public.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := h.Fetch(ctx)
	if err == nil || !strings.Contains(err.Error(), "203.0.113.1: not a private address: want https") {
		t.Errorf("a public address: %v", err)
	}
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "10.1.2.3:80": true, "172.31.255.255:80": true, "192.168.0.1:80": true, "[::1]:80": true, "[fd00::1]:80": true,
		"[::ffff:10.0.0.1]:80": true, "[::ffff:203.0.113.1]:80": false, "172.32.0.1:80": false, "169.254.169.254:80": false, "[fe80::1%lo]:80": false,
		"0.0.0.0:80": false, "[2001:db8::1]:80": false, "8.8.8.8:80": false, "rules.test:80": false,
	} {
		if err := onlyPrivate("tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v, want it dialled: %v", address, err, want)
		}
	}
}

// TestHTTPProxy checks that only https uses the proxy of the environment: of a request
// through a proxy, the address that is dialled says nothing.
func TestHTTPProxy(t *testing.T) {
	for url, want := range map[string]bool{"http://rules.test/x": false, "https://rules.test/x": true} {
		h := provisioned(t, &HTTP{URL: url})
		if got := h.client.Transport.(*http.Transport).Proxy != nil; got != want {
			t.Errorf("%s: through a proxy: %v, want %v", url, got, want)
		}
	}
}
