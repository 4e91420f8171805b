package test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// grpcSite returns a site that speaks HTTP/2 without TLS.
func grpcSite(t *testing.T, app, site string) *site {
	return serve(t, setup{
		global: "servers :8001 {\nprotocols h1 h2c\ntrusted_proxies static 127.0.0.0/8\ntrusted_proxies_strict\n}",
		app:    app, site: site + "\nrespond ok",
	})
}

// text is a codec of messages that are text.
type text struct{}

func (text) Name() string                  { return "text" }
func (text) Marshal(v any) ([]byte, error) { return []byte(*v.(*string)), nil }
func (text) Unmarshal(b []byte, v any) error {
	*v.(*string) = string(b)
	return nil
}

// call calls a method with the client of gRPC.
func (s *site) call() (header, trailer metadata.MD, err error) {
	s.Helper()
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(s.url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	in, out := "hello", ""
	err = conn.Invoke(s.Context(), "/greeter/Hello", &in, &out, grpc.ForceCodec(text{}), grpc.Header(&header), grpc.Trailer(&trailer))
	return header, trailer, err
}

// TestGRPC calls a denied method with the client of gRPC.
func TestGRPC(t *testing.T) {
	const zone = "rate_limit {\nzone z {\nrule 1/1h\n"
	for name, c := range map[string]struct {
		app, site string
		want      codes.Code
		retry     string
	}{
		"error":       {"", zone + "}\n}\nhandle_errors {\nrespond sorry 418\n}", codes.ResourceExhausted, "3600"},
		"respond":     {"", zone + "respond 403 no {\nheader Content-Type text/plain\n}\n}\n}", codes.ResourceExhausted, "3600"},
		"problem":     {"", zone + "respond {\nproblem\n}\n}\n}", codes.ResourceExhausted, "3600"},
		"key":         {"", "rate_limit {\nzone z {\nkey {header.X-None}\nkey_missing deny\nrule 1/1h\n}\n}", codes.ResourceExhausted, ""},
		"unavailable": {redisStore(unusedAddr(t), "on_failure deny"), zone + "}\n}", codes.Unavailable, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := grpcSite(t, c.app, c.site)
			s.send(req{}) // the only one that may pass
			header, trailer, err := s.call()
			if got := status.Code(err); got != c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
			got := strings.Join(trailer.Get("retry-after"), " ")
			if n, _ := strconv.Atoi(got); c.retry == "3600" && n > 3600-60 && n < 3600 { // the first request was some time ago
				got = c.retry
			}
			if got != c.retry {
				t.Errorf("Retry-After %q, want %q; headers %v, trailers %v", got, c.retry, header, trailer)
			}
		})
	}
}

// TestGRPCTrailersOnly checks that the response is one header and nothing else, and which
// requests get it.
func TestGRPCTrailersOnly(t *testing.T) {
	s := grpcSite(t, "", "rate_limit {\nzone z {\nrule 1/1h\n}\nheaders all\n}")
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(h2.CloseIdleConnections)
	s.want(req{}, 200)
	for _, c := range []struct {
		via  http.RoundTripper
		typ  string
		want int
	}{
		{h2, "application/grpc", 200},
		{h2, "application/grpc+proto", 200},
		{h2, "application/grpc; charset=utf-8", 200},
		{h2, "application/grpc-web+proto", 429},
		{h2, "application/json", 429},
		{h2, "", 429},
		{http.DefaultTransport, "application/grpc", 429},
	} {
		r := req{method: http.MethodPost, header: map[string]string{"Content-Type": c.typ}}.http(s)
		resp, err := c.via.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		a := &answer{resp.StatusCode, resp.Header, string(body)}
		if err != nil || a.status != c.want || a.body != "" || len(resp.Trailer) > 0 {
			t.Errorf("%s over %s: status %d %q %v %v, want %d", c.typ, resp.Proto, a.status, a.body, resp.Trailer, err, c.want)
		}
		s.wantHeader(a, "Retry-After", "3600")
		s.wantHeader(a, "Cache-Control", "no-store")
		s.wantHeader(a, "RateLimit-Policy", `"z";q=1;w=3600`)
		if c.want == 429 {
			s.wantNoHeader(a, "Grpc-Status")
			continue
		}
		s.wantHeader(a, "Content-Type", "application/grpc")
		s.wantHeader(a, "Grpc-Status", "8")
		s.wantHeader(a, "Grpc-Message", "rate limit exceeded")
	}
}
