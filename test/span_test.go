package test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// collector receives spans as OTLP over HTTP, as they are.
type collector struct {
	mu   sync.Mutex
	text []byte
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.URL.Path == "/v1/traces" {
		c.text = append(c.text, body...)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// forget forgets the spans that came so far.
func (c *collector) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = nil
}

// has reports whether a span has an attribute: in protobuf, a key (field 1) and a value (field 2)
// with a text (field 1), each with its length.
func (c *collector) has(key, value string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := append([]byte{1<<3 | 2, byte(len(key))}, key...)
	want = append(want, 2<<3|2, byte(len(value)+2), 1<<3|2, byte(len(value)))
	return bytes.Contains(c.text, append(want, value...))
}

// collect starts a collector, to which Caddy's tracing sends spans until the end of the test.
func collect(t *testing.T) *collector {
	t.Helper()
	c := new(collector)
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	t.Setenv("no_proxy", "127.0.0.1")
	return c
}

// TestSpans sends the spans of Caddy's tracing to a collector. They say which zone decided, what, and
// why.
func TestSpans(t *testing.T) {
	c := collect(t)
	g := newGate()
	s := serve(t, setup{site: `
		tracing {
			span site
		}
		rate_limit {
			zone spanned {
				match not path /delayed /held
				rule 1/1h block 1h
			}
			zone slow {
				match path /delayed
				rule 1/10s leaky_bucket burst 3
			}
			zone placed {
				match path /held
				in_flight adaptive {
					min 1
					max 1
				}
			}
		}
		handle /held {
			` + handle(t, "*", g.ServeHTTP) + `
		}
		respond ok`})
	s.want(req{}, 200)
	until(t, "the span of an allowed request", func() bool {
		return c.has("rate_limit.zone", "spanned") && c.has("rate_limit.decision", "allowed")
	})
	if c.has("rate_limit.decision", "denied") || c.has("rate_limit.cause", "rule") {
		t.Error("an allowed request has a cause")
	}
	s.want(req{}, 429)
	until(t, "the span of a denial", func() bool { return c.has("rate_limit.decision", "denied") && c.has("rate_limit.cause", "rule") })
	s.want(req{}, 429)
	until(t, "the span of a blocked key", func() bool { return c.has("rate_limit.cause", "blocked") })
	held := s.open(g, req{path: "/held"})
	s.want(req{path: "/held"}, 503)
	until(t, "the span of a denial for want of a place", func() bool { return c.has("rate_limit.zone", "placed") && c.has("rate_limit.cause", "overload") })
	g.goOn <- true
	<-held
	s.want(req{path: "/delayed"}, 200)
	ctx, leave := context.WithCancel(t.Context())
	go func() { _, _ = s.try(req{path: "/delayed", ctx: ctx}) }()
	until(t, "a request to be delayed", func() bool { return s.metric("decisions_total", "zone", "slow", "decision", "delayed") == 1 })
	leave()
	until(t, "the span of a client that left", func() bool { return c.has("rate_limit.decision", "left") })
	if c.has("rate_limit.decision", "delayed") {
		t.Error("the span says that the request of a client that left was delayed")
	}
}

// TestSpanOfSeveralHandlers has two handlers decide about a request: its span has all of the decision of one, the more
// notable.
func TestSpanOfSeveralHandlers(t *testing.T) {
	c := collect(t)
	const handler, end = "rate_limit {\nzone ", "\n}\n}\n"
	s := serve(t, setup{site: "tracing {\nspan site\n}\nroute /kept {\n" +
		handler + "wary {\nrule 1/1h\nshadow" + end + handler + "calm {\nrule 100/1h" + end + "respond ok\n}\nroute /replaced {\n" +
		handler + "doubt {\nrule 1/1h\nshadow" + end + handler + "slow {\nrule 1/1s leaky_bucket burst 5" + end + "respond ok\n}"})
	s.want(req{path: "/kept"}, 200)
	until(t, "the span of a request that all allow", func() bool { return c.has("rate_limit.zone", "calm") })
	c.forget()
	s.want(req{path: "/kept"}, 200)
	until(t, "the span of a request that a shadow would deny", func() bool { return c.has("rate_limit.decision", "shadow_denied") })
	if !c.has("rate_limit.zone", "wary") || !c.has("rate_limit.cause", "rule") || c.has("rate_limit.zone", "calm") {
		t.Error("the span has no zone and cause of its own")
	}
	s.want(req{path: "/replaced"}, 200)
	until(t, "the span of another zone", func() bool { return c.has("rate_limit.zone", "slow") })
	c.forget()
	s.want(req{path: "/replaced"}, 200)
	until(t, "the span of a delay", func() bool { return c.has("rate_limit.decision", "delayed") })
	if c.has("rate_limit.cause", "rule") {
		t.Error("the span of a delay has the cause of a denial in shadow")
	}
}
