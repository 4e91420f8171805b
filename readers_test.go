package diana

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(outsider{})
	httpcaddyfile.RegisterHandlerDirective("test_outsider", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return outsider{}, nil
	})
}

// outsider is a handler of somebody else's, which reads a placeholder that
// stands in no configuration.
type outsider struct{}

func (outsider) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_outsider", New: func() caddy.Module { return new(outsider) }}
}

func (outsider) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	w.Header().Set("X-Left", replacer(r).ReplaceKnown("{http.rate_limit.z.remaining}", ""))
	return next.ServeHTTP(w, r)
}

// TestUnread sees that placeholders are left out only where nobody can read them.
func TestUnread(t *testing.T) {
	const zone = "route {\nrate_limit {\nzone z {\nrule 5/1h\n}\n}\n%s\n}\n"
	for _, c := range []struct {
		name, in, site string
		unread         bool
	}{
		{"nobody", "respond ok", "", true},
		{"a body", `respond "{http.rate_limit.z.remaining}"`, "", false},
		{"a log before it", "respond ok", "log_append left {http.rate_limit.z.remaining}", false},
		{"error routes", "respond ok", "handle_errors {\nrespond {http.rate_limit.exceeded.name}\n}", false},
		{"an expression", "@low expression `{http.rate_limit.z.remaining} < 9`\nrespond @low low", "", false},
		{"templates", "templates\nrespond ok", "", false},
		{"pages of a browser", "file_server browse", "", false},
		{"a handler of somebody else's", "test_outsider\nrespond ok", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, config{site: fmt.Sprintf(zone, c.in) + c.site})
			if h := s.handlers(); len(h) != 1 || h[0].unread != c.unread {
				t.Errorf("%d handlers, unread %v, want %v", len(h), h[0].unread, c.unread)
			}
			if a := s.send(req{}); c.in == "test_outsider\nrespond ok" {
				s.wantHeader(a, "X-Left", "4")
			}
		})
	}
}

// TestPlaceholdersOutliveTheHandler lets many clients at once read placeholders
// before and after the handler has returned: each sees what is its own.
func TestPlaceholdersOutliveTheHandler(t *testing.T) {
	const clients, allowed = 8, 30
	s := serve(t, config{site: `
		log_append left {http.rate_limit.z.remaining}
		log_append by {http.rate_limit.exceeded.rule}
		log_append who {header.X-Who}
		header >X-Left {http.rate_limit.z.remaining}
		rate_limit {
			zone z {
				key {header.X-Who}
				rule 30/1h name hourly
			}
		}
		respond {http.rate_limit.z.remaining}
		handle_errors {
			respond "{header.X-Who} {http.rate_limit.exceeded.rule} {http.rate_limit.z.decision}"
		}`})
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			who := fmt.Sprint("client", c)
			for i := range allowed + 5 {
				a, err := s.try(req{header: map[string]string{"X-Who": who}})
				if err != nil {
					t.Error(err)
					return
				}
				left := fmt.Sprint(allowed - 1 - i)
				switch {
				case i >= allowed && a.body != who+" hourly denied":
					t.Errorf("%s is told %q of a denial", who, a.body)
				case i < allowed && (a.body != left || a.get("X-Left") != left):
					t.Errorf("%s is told that %q and %q are left, want %s", who, a.body, a.get("X-Left"), left)
				}
			}
		})
	}
	wg.Wait()
	type line struct{ who, left, by string }
	seen := make(map[line]int)
	until(t, "the access log", func() bool {
		clear(seen)
		for _, l := range s.log.lines(t, "handled request") {
			seen[line{fmt.Sprint(l["who"]), fmt.Sprint(l["left"]), fmt.Sprint(l["by"])}]++
		}
		n := 0
		for _, times := range seen {
			n += times
		}
		return n == clients*(allowed+5)
	})
	for c := range clients {
		who := fmt.Sprint("client", c)
		for left := range allowed {
			if n := seen[line{who, fmt.Sprint(left), ""}]; n != 1 {
				t.Errorf("%d lines say that %s has %d left, want 1", n, who, left)
			}
		}
		if n := seen[line{who, "0", "hourly"}]; n != 5 {
			t.Errorf("%d lines say that %s was denied, want 5", n, who)
		}
	}
}
