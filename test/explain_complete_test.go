package test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// looksAt are all matchers of Caddy, and placeholders of what a request is: whatever is known of one
// on any of its connections.
var looksAt = struct{ matchers, keys []string }{
	[]string{
		"path /a*", "path_regexp name ^/(a)", "query q=1", "header X-K a", "header_regexp X-K ^a", "header X_K *", "header Content-Length *", "host localhost", "method GET",
		"protocol https", "protocol http", "protocol http/1.1", "protocol http/1.1+", "protocol http/2", "protocol http/2+", "protocol http/3", "protocol grpc", "tls", "tls early_data",
		"client_ip 127.0.0.1", "client_ip 10.0.0.0/8", "remote_ip 127.0.0.0/8 ::1", "remote_ip 10.0.0.0/8", "not client_ip 10.0.0.0/8", "not tls",
		"expression client_ip('127.0.0.0/8')", "expression remote_ip('127.0.0.0/8', '::1')", "expression tls()", "expression tls('early_data')", "expression protocol('https')",
		"expression {http.request.proto}=='HTTP/2.0'", "expression {http.request.tls.version}=='tls1.3'", "expression `!file({'try_files': ['{path}']})`", "file {\nroot /\n}",
		"vars {http.request.scheme} https", "vars {http.request.tls.proto} h3", "vars_regexp {http.request.tls.server_name} ^localhost", "vars seen yes", "vars trusted_proxy true",
		"url_pattern /:first", "url_pattern https://localhost:*/:first",
	},
	strings.Fields("scheme proto proto_name method host port hostport host.labels.0 local local.host local.port remote.host remote.host/24,64 uri uri.path uri.path.0 uri.path.file uri.query " +
		"uri.prefixed_query uri.query.q orig_method orig_uri orig_uri.path orig_uri.path.file orig_uri.path.0 orig_uri.query header.X-K header.X_K header.Content-Length cookie.c " +
		"tls.version tls.proto tls.proto_mutual tls.server_name tls.resumed tls.ech tls.client.subject tls.client.fingerprint tls.client.san.dns_names.0"),
}

// lookingSite returns the directives of a site with a zone for each matcher and each placeholder.
func lookingSite() string {
	var b strings.Builder
	b.WriteString("route {\nvars seen yes\n@file path_regexp part ^/(.)\nrewrite @file /a/{re.part.1}?r=1&{query}\nrate_limit {\n")
	zone := func(line string) {
		fmt.Fprintf(&b, "zone z%d {\n%s\nkey_missing share\nrule 1000/1h fixed_window\n}\n", strings.Count(b.String(), "zone z"), line)
	}
	for _, m := range looksAt.matchers {
		zone("match " + m)
		zone("exempt " + m)
	}
	for _, k := range looksAt.keys {
		zone("key {http.request." + k + "}")
	}
	for _, k := range []string{"http.vars.client_ip", "http.vars.trusted_proxy", "http.vars.seen", "http.shutting_down", "http.re.part.1", "system.os"} {
		zone("key {" + k + "}")
	}
	b.WriteString("}\nrespond ok\n}\n")
	return b.String()
}

// TestExplainIsWhatTheServerDoes checks that each of Caddy's matchers and placeholders answers to a
// described request as to the request, over each version of HTTP, with TLS and without.
func TestExplainIsWhatTheServerDoes(t *testing.T) {
	port, plainPort := redistest.FreePort(t), redistest.FreePort(t)
	site := lookingSite()
	s := serve(t, setup{site: "respond no", more: fmt.Sprintf("https://:%d {\ntls %s\n%s\n}\nhttp://:%d {\n%s\n}", port, certificate(t), site, plainPort, site)})
	local := func(ctx context.Context, _, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp4", address)
	}
	insecure := &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}
	one := &http.Transport{DialContext: local, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{"http/1.1"}}, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	two := &http.Transport{DialContext: local, TLSClientConfig: insecure.Clone(), ForceAttemptHTTP2: true}
	three := &http3.Transport{TLSClientConfig: insecure.Clone()}
	t.Cleanup(func() {
		one.CloseIdleConnections()
		two.CloseIdleConnections()
		_ = three.Close()
	})
	https := fmt.Sprintf("https://localhost:%d", port)
	plain := fmt.Sprintf("http://localhost:%d", plainPort)
	for _, c := range []struct {
		name, url, proto string
		transport        http.RoundTripper
	}{{"http", plain, "", one}, {"https", https, "http/1.1", one}, {"h2", https, "", two}, {"h3", https, "http/3", three}} {
		t.Run(c.name, func(t *testing.T) {
			for _, q := range []req{
				{method: "GET", path: "/a?q=1"},
				{method: "POST", path: "/b/c%2fd.txt?q=2", ip: "10.0.0.9", body: "body", header: map[string]string{"X-K": "a", "X_K": "b", "Cookie": "c=1"}},
			} {
				q.to = c.url
				explainedAsServed(t, s, q, c.proto, c.transport)
			}
		})
	}
}

// explainedAsServed sends a request, and checks that it is charged where explain said before.
func explainedAsServed(t *testing.T, s *site, q req, proto string, over http.RoundTripper) {
	t.Helper()
	client := q.ip
	if client == "" {
		client = "127.0.0.1"
	}
	headers := map[string]string{"User-Agent": "test"}
	for name, value := range q.header {
		headers[name] = value
	}
	r := q.http(s)
	r.Header["User-Agent"] = []string{"test"}
	if _, plain := headers["X_K"]; plain { // as it is written
		delete(r.Header, "X_k")
		r.Header["X_K"] = []string{headers["X_K"]}
	}
	text, _ := json.Marshal(map[string]any{"method": r.Method, "url": r.URL.String(), "client_ip": client, "remote_ip": "127.0.0.1", "headers": headers, "body": q.body, "proto": proto})
	var e cli.Explanation
	if status, answer := s.admin("POST", "explain", string(text), &e); status != 200 || e.Decision != "allowed" {
		t.Fatalf("%d %s", status, answer)
	}
	before := decisions(t, s)
	resp, err := over.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "ok" {
		t.Fatalf("%d %s, %v", resp.StatusCode, body, err)
	}
	_ = resp.Body.Close()
	after := decisions(t, s)
	decided := func(zone, decision string) bool { return after[zone][decision] > before[zone][decision] }
	explained := make(map[string]limiter.Key)
	for _, z := range e.Handlers[0].Zones {
		explained[z.Zone] = z
	}
	for zone := range after {
		z := explained[zone]
		if decided(zone, "allowed") != (z.Decision == "allowed") || decided(zone, "skipped") != (z.Decision == "skipped") {
			t.Errorf("%s: explained as %q; allowed: %v, skipped: %v", zoneText(zone), z.Decision, decided(zone, "allowed"), decided(zone, "skipped"))
		}
		if z.Decision != "allowed" {
			continue
		}
		var now limiter.Key
		if status, answer := s.admin("GET", "zones/"+zone+"/key?hash="+z.Key, "", &now); status != 200 || now.Rules[0].Remaining != z.Rules[0].Remaining-1 {
			t.Errorf("%s: explained with key %q, and another one was charged: %s", zoneText(zone), z.Parts, answer)
		}
	}
}

// decisions returns how many requests zones have decided, by outcome.
func decisions(t *testing.T, s *site) map[string]map[string]uint64 {
	t.Helper()
	var zones cli.Zones
	if status, text := s.admin("GET", "zones", "", &zones); status != 200 {
		t.Fatal(text)
	}
	all := make(map[string]map[string]uint64)
	for _, z := range zones.Zones {
		all[z.Name] = z.Decisions
	}
	return all
}

// zoneText returns what a zone of lookingSite looks at.
func zoneText(name string) string {
	_, text, _ := strings.Cut(lookingSite(), "zone "+name+" {\n")
	line, _, _ := strings.Cut(text, "\nkey_missing")
	return line
}

// TestExplainFailingMatchers checks that requests whose matchers fail are undecided, not free.
func TestExplainFailingMatchers(t *testing.T) {
	for where, site := range map[string]string{
		"zone":  "rate_limit {\nzone a {\nmatch expression `{header.X-K}.size() > 1 && int({header.X-K}) > 1`\nrule 1/1h\n}\n}\nrespond ok",
		"route": "@m expression `int({header.X-K}) > 1`\nhandle @m {\nrate_limit {\nzone a {\nrule 1/1h\n}\n}\n}\nrespond ok",
	} {
		s := serve(t, setup{site: site})
		for value, want := range map[string]string{"12": "allowed", "xy": cli.Undecided} {
			var e cli.Explanation
			if status, text := s.admin("POST", "explain", fmt.Sprintf(`{"url": "http://localhost:8001/", "client_ip": "10.0.0.1", "headers": {"X-K": %q}}`, value), &e); status != 200 || e.Decision != want {
				t.Errorf("%s %s: %d %s, want %s", where, value, status, text, want)
			}
			if failed := s.send(req{header: map[string]string{"X-K": value}}).status == 500; failed != (want == cli.Undecided) {
				t.Errorf("%s %s: failed: %v", where, value, failed)
			}
		}
	}
}

// TestReplayOfHTTPS checks that a replay of the log of a site with TLS denies what was denied.
func TestReplayOfHTTPS(t *testing.T) {
	port := redistest.FreePort(t)
	c := setup{site: "respond no", more: fmt.Sprintf(`https://:%d {
	log
	tls %s
	rate_limit {
		zone api {
			match client_ip 10.0.0.0/8
			exempt remote_ip 192.0.2.0/24
			match remote_ip 127.0.0.0/8
			match tls
			match vars {http.request.tls.version} tls1.3
			exempt client_ip 10.9.0.0/16
			rule 5/1h
		}
	}
	respond ok
}`, port, certificate(t))}
	s := serve(t, c)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for i := range 10 {
		r := req{to: fmt.Sprintf("https://127.0.0.1:%d", port), ip: map[bool]string{true: "10.9.0.1", false: "10.0.0.1"}[i < 2]}.http(s)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	dir := t.TempDir()
	until(t, "the last line of the access log", func() bool { return strings.Count(s.log.text(), "handled request") == 10 })
	for name, text := range map[string]string{"access.log": s.log.text(), "Caddyfile": c.caddyfile(s)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := caddyCommand("", "rate-limit", "replay", filepath.Join(dir, "access.log"), "--config", filepath.Join(dir, "Caddyfile"))
	if err != nil || !strings.Contains(out, "5 would pass, 3 would be denied") {
		t.Errorf("%v\n%s", err, out)
	}
}
