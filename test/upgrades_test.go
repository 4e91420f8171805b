package test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// upgrades starts an upstream that accepts every upgrade, and refuses other requests and the
// path /refused with 401.
func upgrades(t *testing.T) *httptest.Server {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" || r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	}))
	t.Cleanup(up.Close)
	return up
}

// upgradeTo is like upgrade, and returns the status and how to close the connection.
func (s *site) upgradeTo(path string) (status int, leave func()) {
	s.Helper()
	conn, resp := s.upgrade(req{path: path})
	return resp.StatusCode, func() { _ = conn.Close() }
}

// TestUpgradesOfOnePath opens connections to several spellings of a path. They hold the permits
// of one key.
func TestUpgradesOfOnePath(t *testing.T) {
	up := upgrades(t)
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone paths {
					key {path}
					in_flight 2
				}
			}
			reverse_proxy ` + up.Listener.Addr().String()})
		var all []func()
		for i, path := range []string{"/chat/one", "//chat/./one", "/x/../chat/one", "/Chat/%6fne"} {
			status, leave := s.upgradeTo(path)
			want := http.StatusSwitchingProtocols
			if i >= 2 {
				want = http.StatusTooManyRequests
			}
			if status != want {
				t.Errorf("%s: status %d, want %d", path, status, want)
			}
			all = append(all, leave)
		}
		s.want(req{path: "/chat/one"}, 429)
		s.want(req{path: "/chat/two"}, 401)
		for _, leave := range all {
			leave()
		}
		until(t, "the permits", func() bool { return s.send(req{path: "/chat/one"}).status == 401 })
	})
}

// TestUpgradesAreCountedByStatus checks that an upgrade counts by its status: 101, or that of
// the response that refuses it. While the connection is open, it holds its place.
func TestUpgradesAreCountedByStatus(t *testing.T) {
	up := upgrades(t)
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit /refused {
				zone refused {
					key all
					count_status 401
					rule 2/1h
				}
			}
			rate_limit /chat {
				zone chat {
					key all
					count_status 401
					rule 2/1h
				}
			}
			rate_limit /opened {
				zone opened {
					key all
					count_status 101
					rule 2/1h
				}
			}
			reverse_proxy ` + up.Listener.Addr().String()})
		sent := 0
		upgrade := func(path string, want int) (leave func()) {
			t.Helper()
			sent++
			status, leave := s.upgradeTo(path)
			if status != want {
				t.Errorf("request %d, of %s: status %d, want %d", sent, path, status, want)
			}
			return leave
		}
		end := func(all ...func()) {
			t.Helper()
			for _, leave := range all {
				leave()
			}
			until(t, "the end of all requests", func() bool { return len(s.log.lines(t, "handled request")) == sent })
		}
		for _, want := range []int{401, 401, 429, 429} {
			end(upgrade("/refused", want))
		}
		for range 3 { // what is not refused is not charged
			end(upgrade("/chat", 101), upgrade("/chat", 101), upgrade("/chat", 429))
		}
		for _, want := range []int{101, 101, 429} {
			end(upgrade("/opened", want))
		}
	})
}

// TestUpgradeHidesNoField adds what makes a request an upgrade to one with a body. Its field is
// not read, and the request is denied instead of counted elsewhere.
func TestUpgradeHidesNoField(t *testing.T) {
	up := bodyEcho(t)
	s := serve(t, setup{site: byPhone("deny", "2/1h", "reverse_proxy "+up.Listener.Addr().String())})
	for _, h := range []map[string]string{
		{"Upgrade": "websocket"},
		{"Upgrade": "x", "Connection": "Upgrade"},
		{"Upgrade": "", "Connection": "Upgrade"},
		{"Upgrade": "h2c", "Connection": "Upgrade, HTTP2-Settings", "Http2-Settings": "AAMAAABkAARAAAAAAAIAAAAA"},
	} {
		h["Content-Type"] = "application/json"
		for range 3 {
			if a := s.send(req{method: http.MethodPost, header: h, body: `{"phone":"1"}`}); a.status != 429 {
				t.Errorf("%v: status %d, want 429", h, a.status)
			}
		}
	}
	plain := map[string]string{"Content-Type": "application/json", "Connection": "Upgrade"} // upgrades to nothing
	for _, want := range []int{200, 200, 429} {
		if a := s.send(req{method: http.MethodPost, header: plain, body: `{"phone":"2"}`}); a.status != want {
			t.Errorf("status %d, want %d", a.status, want)
		}
	}
}

// TestExtendedConnect opens WebSockets over HTTP/3 by extended CONNECT requests. They hold the
// permits of one path however it is spelt, and their streams are not read for a key.
func TestExtendedConnect(t *testing.T) {
	up, port := upgrades(t), redistest.FreePort(t)
	serve(t, setup{site: "respond ok", more: fmt.Sprintf(`https://localhost:%d {
		tls %s
		rate_limit /chat/* {
			zone h3paths {
				key {path}
				in_flight 2
			}
		}
		rate_limit /sms {
			zone h3sms {
				key {body.phone}
				key_missing deny
				rule 2/1h
			}
		}
		rate_limit /free {
			zone h3free {
				prevent_duplicates 1h
				tokens {
					reserve 2
				}
				rule 3/1h
			}
		}
		rate_limit /refused {
			zone h3refused {
				key {host}
				count_status 401
				rule 2/1h
			}
		}
		reverse_proxy %s
	}`, port, certificate(t), up.Listener.Addr())})
	quicConn, err := quic.DialAddr(t.Context(), fmt.Sprintf("127.0.0.1:%d", port),
		&tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{http3.NextProtoH3}}, &quic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	conn := new(http3.Transport).NewClientConn(quicConn)
	defer func() { _ = conn.CloseWithError(0, "") }()
	connect := func(path string) (status int, leave func()) {
		t.Helper()
		stream, err := conn.OpenRequestStream(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		host := fmt.Sprintf("localhost:%d", port)
		r := &http.Request{
			Method: http.MethodConnect, Proto: "websocket", Host: host,
			URL: &url.URL{Scheme: "https", Host: host, Path: path}, Header: http.Header{"Content-Type": {"application/json"}},
		}
		if err := stream.SendRequestHeader(r); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.ReadResponse()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return resp.StatusCode, func() {
			stream.CancelRead(0)
			_ = stream.Close()
		}
	}
	var all []func()
	for i, path := range []string{"/chat/one", "//chat/./one", "/x/../chat/one", "/Chat/ONE"} {
		status, leave := connect(path)
		want := http.StatusOK
		if i >= 2 {
			want = http.StatusTooManyRequests
		}
		if status != want {
			t.Errorf("%s: status %d, want %d", path, status, want)
		}
		all = append(all, leave)
	}
	for _, leave := range all {
		leave()
	}
	until(t, "a permit", func() bool {
		status, leave := connect("/chat/one")
		leave()
		return status == 200
	})
	if status, leave := connect("/sms"); status != 429 {
		t.Errorf("a stream without a field: status %d, want 429", status)
	} else {
		leave()
	}
	for range 2 { // as over HTTP/1, where a WebSocket is a GET
		status, leave := connect("/free")
		if leave(); status != 200 {
			t.Errorf("a stream that costs no tokens, and is no duplicate: status %d, want 200", status)
		}
	}
	for i, want := range []int{401, 401, 429} {
		if status, leave := connect("/refused"); status != want {
			t.Errorf("refused request %d: status %d, want %d", i+1, status, want)
		} else {
			leave()
		}
	}
}

// TestConnect sends CONNECT requests, which have no path, to many targets over HTTP/1.1 and 2.
// They are counted together by the client's address, in a zone whose key is the path.
func TestConnect(t *testing.T) {
	s, two := h2Site(t, "{path}")
	served := make(map[string]int)
	for i := range 5 {
		target := fmt.Sprintf("host%d.example:443", i)
		if s.raw(http.MethodConnect, target, target) == 200 {
			served["1.1"]++
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodConnect, s.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = target
		resp, err := two.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.ProtoMajor != 2 {
			t.Fatalf("over %s", resp.Proto)
		}
		if resp.StatusCode == 200 {
			served["2"]++
		}
	}
	if served["1.1"] != 1 || served["2"] != 1 {
		t.Errorf("served %v, want one of each protocol", served)
	}
}
