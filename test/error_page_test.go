package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/testdir"
	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// recipe serves the Caddyfile of docs/recipes.md that has a text, with files of /etc/caddy/errors in a
// directory, and returns its site and host.
func recipe(t *testing.T, has, dir string) (s *site, host string) {
	t.Helper()
	all := snippets(t)
	at := slices.IndexFunc(all, func(sn snippet) bool {
		return sn.file == "docs/recipes.md" && sn.lang == "caddyfile" && strings.Contains(sn.text, has)
	})
	if at < 0 {
		t.Fatalf("docs/recipes.md has no Caddyfile with %q", has)
	}
	s = newSite(t)
	adapted, err := trace.Adapt(strings.ReplaceAll(all[at].text, "/etc/caddy/errors", dir))
	if err != nil {
		t.Fatal(err)
	}
	if host, err = s.loadText(adapted, trace.Place{Upstream: documentedUpstream(t)}); err != nil {
		t.Fatal(err)
	}
	return s, host
}

// TestErrorPage requests the page of a recipe that a file and templates make: it replaces the body of a
// denial, and keeps the status and the headers.
func TestErrorPage(t *testing.T) {
	dir := testdir.New(t)
	page := `<title>Slow down</title>again in {{placeholder "http.rate_limit.exceeded.retry_after"}} s, zone {{placeholder "http.rate_limit.exceeded.name"}}`
	if err := os.WriteFile(filepath.Join(dir, "429.html"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	s, host := recipe(t, "rewrite /429.html", dir)
	q := req{host: host, ip: "10.0.0.1", path: "/any?x=1"}
	s.want(q, 200, 200)
	a := s.want(q, 429)
	s.between(a, "Retry-After", 50, 60)
	s.wantHeader(a, "Content-Type", "text/html; charset=utf-8")
	if want := "again in " + a.header.Get("Retry-After") + " s, zone auto-"; !strings.Contains(a.body, want) || !strings.HasPrefix(a.body, "<title>") {
		t.Errorf("the page is %q, want %q in it", a.body, want)
	}
	if a.header.Get("RateLimit") == "" || len(a.header.Values("Retry-After")) != 1 {
		t.Errorf("the headers of the denial are %v", a.header)
	}
}

// TestAdmittedInAccessLog runs the recipe that writes what a client has used into the access log.
func TestAdmittedInAccessLog(t *testing.T) {
	s, host := recipe(t, "log_append used", "")
	for used := 1; used <= 3; used++ {
		s.want(req{host: host, ip: "10.0.0.1"}, 200)
		until(t, "the line of the access log", func() bool { return len(s.log.lines(t, "handled request")) == used })
		line := s.log.lines(t, "handled request")[used-1]
		if got := fmt.Sprint(line["used"], " of ", line["limit"]); got != fmt.Sprintf("%d of 100", used) {
			t.Errorf("request %d: used %s of 100", used, got)
		}
	}
}

// TestExemptPrivateRanges exempts the addresses that are not of the internet.
func TestExemptPrivateRanges(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, zoneOf(b, "rule 1/1h\nexempt private_ranges"))
		for _, ip := range []string{"10.1.2.3", "172.16.0.1", "192.168.9.9", "127.0.0.1", "fd00::1", "::1"} {
			s.want(req{ip: ip}, 200, 200, 200)
		}
		for _, ip := range []string{"203.0.113.1", "172.32.0.1", "192.169.0.1", "2001:db8::1", "11.0.0.1"} {
			s.want(req{ip: ip}, 200, 429)
		}
	})
}
