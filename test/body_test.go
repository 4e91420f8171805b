package test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// byPhone returns a site that counts by the field phone of a body.
func byPhone(missing, rule, handler string) string {
	return fmt.Sprintf(`
		rate_limit {
			zone sms {
				key {body.phone}
				key_missing %s
				rule %s
			}
		}
		%s`, missing, rule, handler)
}

// bodyEcho is an upstream that returns what it receives.
func bodyEcho(t *testing.T) *httptest.Server {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("X-Received", fmt.Sprint(r.ContentLength, r.TransferEncoding, r.Trailer.Get("X-Trailer")))
		_, _ = w.Write(b)
	}))
	t.Cleanup(up.Close)
	return up
}

// certificate writes a certificate for localhost and its key, and returns the arguments of
// the directive tls.
func certificate(t testing.TB) string {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert + " " + key
}

// TestBodyKeyOverProtocols sends bodies over HTTP/1.1, 2 and 3, with and without a length.
// They are counted by a field, and the upstream receives them byte by byte.
func TestBodyKeyOverProtocols(t *testing.T) {
	up := bodyEcho(t)
	port := redistest.FreePort(t)
	serve(t, setup{site: "respond ok", more: fmt.Sprintf("https://localhost:%d {\ntls %s\n%s\n}", port, certificate(t),
		byPhone("skip", "2/1h", "reverse_proxy "+up.Listener.Addr().String()))})
	insecure := &tls.Config{InsecureSkipVerify: true}
	// Each has a copy: a transport adds its protocols to the configuration.
	one := &http.Transport{TLSClientConfig: insecure.Clone(), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	two := &http.Transport{TLSClientConfig: insecure.Clone(), ForceAttemptHTTP2: true}
	three := &http3.Transport{TLSClientConfig: insecure.Clone()}
	t.Cleanup(func() {
		one.CloseIdleConnections()
		two.CloseIdleConnections()
		_ = three.Close()
	})
	client := func(rt http.RoundTripper) *http.Client { return &http.Client{Transport: rt, Timeout: 30 * time.Second} }
	n := 0
	for major, c := range map[int]*http.Client{1: client(one), 2: client(two), 3: client(three)} {
		for _, size := range []int{0, 1, 1000, 64<<10 - 100, 64 << 10, 300 << 10, 1 << 20} {
			for _, chunked := range []bool{false, true} {
				n++
				text := fmt.Sprintf(`{"phone":"%d","x":"%s"}`, n, strings.Repeat("a", size))
				counted := len(text) <= 64<<10
				for i := range 4 {
					r, err := http.NewRequest(http.MethodPost, fmt.Sprintf("https://localhost:%d/", port), strings.NewReader(text))
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", "application/json")
					if chunked {
						r.Body, r.ContentLength, r.GetBody = io.NopCloser(strings.NewReader(text)), -1, nil
						r.Trailer = http.Header{"X-Trailer": {"end"}}
					}
					resp, err := c.Do(r)
					if err != nil {
						t.Fatalf("HTTP/%d, %d bytes, chunked %v: %v", major, len(text), chunked, err)
					}
					got, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					want := 200
					if counted && i >= 2 {
						want = 429
					}
					if resp.ProtoMajor != major || resp.StatusCode != want || err != nil || want == 200 && string(got) != text {
						t.Fatalf("HTTP/%d, %d bytes, chunked %v, request %d: status %d over %s, %d bytes: %v, want %d", major, len(text), chunked, i+1, resp.StatusCode, resp.Proto, len(got), err, want)
					}
					if received := resp.Header.Get("X-Received"); want == 200 && !chunked && received != fmt.Sprint(len(text), []string{}, "") {
						t.Errorf("HTTP/%d: received %s", major, received)
					} else if want == 200 && chunked && !strings.HasPrefix(received, "-1 [chunked]") {
						t.Errorf("HTTP/%d: received %s", major, received)
					}
				}
			}
		}
	}
}

// TestMaxBody sends bodies to two handlers: what the first reads by default, the second reads
// further. Bodies arrive as they were sent.
func TestMaxBody(t *testing.T) {
	zone := func(name, option string) string {
		return "rate_limit {\nzone " + name + " {\nkey {body.phone}\nkey_missing skip\n" + option + "\nrule 1000/1h\n}\n}\n"
	}
	s := serve(t, setup{site: zone("by_default", "") + zone("raised", "max_body 1MiB") + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		got, err := io.ReadAll(r.Body) // before the response begins
		_, _ = w.Write(got)
		return err
	})})
	for i, c := range []struct {
		size   int
		policy string
	}{
		{1 << 10, `"by_default";q=1000;w=3600, "raised";q=1000;w=3600`},
		{64 << 10, `"by_default";q=1000;w=3600, "raised";q=1000;w=3600`},
		{64<<10 + 1, `"raised";q=1000;w=3600`},
		{1 << 20, `"raised";q=1000;w=3600`},
		{1<<20 + 1, ""},
		{4 << 20, ""},
	} {
		body := fmt.Sprintf(`{"phone":"%d","x":""}`, i)
		body = strings.Replace(body, `""`, `"`+strings.Repeat("a", c.size-len(body))+`"`, 1)
		for _, chunked := range []bool{false, true} {
			q := req{method: "POST", body: body, header: map[string]string{"Content-Type": "application/json"}}.http(s)
			if chunked {
				q.Body, q.ContentLength, q.GetBody = io.NopCloser(strings.NewReader(body)), -1, nil
			}
			resp, err := s.client.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if policy := strings.Join(resp.Header["Ratelimit-Policy"], ", "); err != nil || string(got) != body || policy != c.policy {
				t.Errorf("%d bytes, chunked %v: %d bytes arrived: %v, policy %s, want %s", c.size, chunked, len(got), err, policy, c.policy)
			}
		}
	}
}

// TestBodyKey checks what is counted by which key, in both stores, by handlers one after
// the other, and as cost.
func TestBodyKey(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone sms {
					match path /sms
					key {body.user.phone} x-{http.request.body.lang}
					key_missing deny
					rule 1/1h
				}
			}
			rate_limit {
				zone tokens {
					match path /tokens
					key {body.model}
					key_missing share
					cost {body.max_tokens}
					rule 100/1h gcra
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.Copy(w, r.Body)
			return err
		})})
		const json, form = "application/json", "application/x-www-form-urlencoded"
		post := func(path, kind, body string, want int) {
			t.Helper()
			a := s.want(req{method: "POST", path: path, body: body, header: map[string]string{"Content-Type": kind}}, want)
			if want == 200 && a.body != body {
				t.Errorf("%q is handed on, want %q", a.body, body)
			}
		}
		post("/sms", json, `{"user":{"phone":"1"},"lang":"de"}`, 200)
		post("/sms", json, `{"lang":"de","user":{"phone":1.0}}`, 429)
		post("/sms", form, `user.phone=+1&lang=de`, 429)
		post("/sms", json, `{"user":{"phone":"1"},"lang":"en"}`, 200)
		post("/sms", json, `{"user":{"phone":"2"},"lang":"de"}`, 200)
		post("/sms", json, `{"user":{"phone":"3"},"user":{"phone":"4"}}`, 429)
		post("/sms", "text/plain", `{"user":{"phone":"5"},"lang":"de"}`, 429)
		post("/sms", json, ``, 429)
		s.want(req{path: "/sms"}, 429)
		post("/tokens", json, `{"model":"a","max_tokens":60}`, 200)
		post("/tokens", json, `{"model":"a","max_tokens":6e1}`, 429)
		post("/tokens", json, `{"model":"a","max_tokens":"40"}`, 200)
		post("/tokens", json, `{"model":"b","max_tokens":101}`, 429)
		post("/tokens", json, `{"model":"b","max_tokens":99.5}`, 200) // counts as 1
		post("/tokens", json, `{"model":"b","max_tokens":99}`, 200)
		post("/tokens", json, `{"model":"b","max_tokens":1}`, 429)
	})
}

// begin opens a connection and sends the beginning of a request.
func (s *site) begin(text string) (net.Conn, *bufio.Reader) {
	s.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		s.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// TestStreamsAreNotCompared sends a body without a length that does not end before the
// response. prevent_duplicates does not read it.
func TestStreamsAreNotCompared(t *testing.T) {
	s := serve(t, setup{site: "rate_limit {\nzone z {\nprevent_duplicates 1h body\n}\n}\n" + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		c := http.NewResponseController(w)
		if err := c.EnableFullDuplex(); err != nil { // or the server waits for the end
			return err
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(r.Body, b); err != nil {
			return err
		}
		_, err := w.Write(b)
		return errors.Join(err, c.Flush())
	})})
	for range 2 {
		begun := time.Now()
		_, r := s.begin("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(resp.Body, b); err != nil || resp.StatusCode != 200 || string(b) != "abcde" {
			t.Errorf("status %d %q %v", resp.StatusCode, b, err)
		}
		if took := time.Since(begun); took > 9*time.Second { // after ten, the body would not be waited for any longer
			t.Errorf("answered after %v", took)
		}
		_ = resp.Body.Close()
	}
}

// TestStalledBody sends requests whose body never ends. A field is read until the server's
// timeout.
func TestStalledBody(t *testing.T) {
	const head = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct {
		site, request string
		status        int
	}{
		"chunked, a field":         {byPhone("deny", "1/1h", "respond ok"), "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"pho\r\n", 429},
		"a length, a field":        {byPhone("deny", "1/1h", "respond ok"), "Content-Length: 100\r\n\r\n{\"phone\":1}", 429},
		"a length, all zones pass": {byPhone("skip", "1/1h", "respond ok"), "Content-Length: 100\r\n\r\n{\"phone\":1}", 200},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, setup{global: "servers :8001 {\ntimeouts {\nread_body 500ms\n}\n}", site: c.site})
			_, r := s.begin(fmt.Sprintf(head, "/") + c.request)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d", resp.StatusCode, c.status)
			}
		})
	}
}

// TestExpectContinue sends a body only once the server asks for it.
func TestExpectContinue(t *testing.T) {
	up := bodyEcho(t)
	s := serve(t, setup{site: byPhone("deny", "1/1h", "reverse_proxy "+up.Listener.Addr().String())})
	for _, want := range []int{200, 429} {
		const body = `{"phone":"1"}`
		conn, r := s.begin(fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body)))
		line, err := r.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
			t.Fatalf("%q %v, want 100 Continue", line, err)
		}
		_, _ = r.ReadString('\n')
		if _, err := io.WriteString(conn, body); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		for err == nil && resp.StatusCode == http.StatusContinue { // that of the upstream
			resp, err = http.ReadResponse(r, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want || want == 200 && !bytes.Equal(got, []byte(body)) {
			t.Errorf("status %d %q, want %d", resp.StatusCode, got, want)
		}
	}
}
