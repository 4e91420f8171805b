package test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// h2Site returns a site that speaks HTTP/2 without TLS, and a client for it.
func h2Site(t *testing.T, key string) (*site, *http.Client) {
	s := serve(t, setup{global: "servers :8001 {\nprotocols h1 h2c\ntrusted_proxies static 127.0.0.0/8\ntrusted_proxies_strict\n}", site: `
		rate_limit {
			zone h2 {
				key ` + key + `
				rule 2/1h
			}
		}
		respond {http.request.proto}`})
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return s, &http.Client{Transport: transport}
}

// h3Site is like h2Site with HTTP/3. It returns the URL of the site.
func h3Site(t *testing.T, key string) (string, *http.Client) {
	port := redistest.FreePort(t)
	serve(t, setup{site: "respond ok", more: fmt.Sprintf("https://:%d {\ntls %s\nrate_limit {\nzone h3 {\nkey %s\nrule 2/1h\n}\n}\nrespond {http.request.proto}\n}", port, certificate(t), key)})
	transport := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(func() { _ = transport.Close() })
	return fmt.Sprintf("https://localhost:%d/", port), &http.Client{Transport: transport, Timeout: time.Minute}
}

// TestSpellingsOverHTTP2And3 sends the spellings of a path and of a host over HTTP/2 and
// HTTP/3, in which a client chooses :path and :authority.
func TestSpellingsOverHTTP2And3(t *testing.T) {
	const key = "{host} {path} {header.Host}"
	t.Run("2", func(t *testing.T) {
		s, client := h2Site(t, key)
		sendSpellings(t, client, s.url, 2)
	})
	t.Run("3", func(t *testing.T) {
		url, client := h3Site(t, key)
		sendSpellings(t, client, url, 3)
	})
}

// sendSpellings sends all spellings to a site, which has to count them as one.
func sendSpellings(t *testing.T, client *http.Client, site string, major int) {
	t.Helper()
	served, sent := 0, 0
	for _, target := range pathSpellings {
		for _, host := range hostSpellings[:4] {
			if !strings.HasPrefix(target, "/") {
				continue // no form of HTTP/2 and 3
			}
			raw, query, _ := strings.Cut(target, "?")
			path, err := url.PathUnescape(raw)
			if err != nil {
				t.Fatal(err)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.Host = path, raw, query, host
			r.Header.Set("Host", "other.example") // must not count
			resp, err := client.Do(r)
			if err != nil {
				t.Fatalf("%s: %v", target, err)
			}
			if sent++; resp.StatusCode == 200 {
				served++
			}
			if resp.ProtoMajor != major {
				t.Fatalf("%s over %s", target, resp.Proto)
			}
			if err := resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if served != 2 {
		t.Errorf("%d of %d served, want 2", served, sent)
	}
}
