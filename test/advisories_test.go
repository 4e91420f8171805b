package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Caddy's advisories of 2026 about who a client is: what a client writes never gives it a count of its own.

// TestForwardAuthHeaders has an authentication service that knows nobody: headers that a client sends
// in the place of those that forward_auth copies are nobody's, however they are spelt
// (GHSA-7r4p-vjf4-gxv4, GHSA-f59h-q822-g45g).
func TestForwardAuthHeaders(t *testing.T) {
	auth := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Session") == "alice" {
			w.Header().Set("Remote-User", "alice")
		}
	}))
	defer auth.Close()
	s := serve(t, setup{site: `
		route {
			forward_auth ` + auth.URL + ` {
				uri /
				copy_headers Remote-User
			}
			rate_limit {
				zone users {
					key {header.Remote-User}
					key_missing share
					rule 3/1h
				}
			}
			respond ok
		}`})
	for i, name := range []string{"Remote-User", "Remote_User", "Remote.User", "REMOTE_USER"} {
		want := http.StatusOK
		if i == 3 { // all of them are one client
			want = http.StatusTooManyRequests
		}
		s.want(req{header: map[string]string{name: fmt.Sprint("made up ", i)}}, want)
	}
	s.want(req{header: map[string]string{"X-Session": "alice", "Remote-User": "bob"}}, 200)
	if k := s.key(http.MethodGet, "users", "alice"); k.Rules[0].Remaining != 2 {
		t.Errorf("%d left of alice, want 2", k.Rules[0].Remaining)
	}
	if k := s.key(http.MethodGet, "users", "bob"); k.Rules[0].Remaining != 3 {
		t.Errorf("%d left of bob, want 3", k.Rules[0].Remaining)
	}
}

// TestHostsOfManySites writes the host in other cases where more than 100 hosts are matched, which Caddy
// searches another way (CVE-2026-27588), in a zone and in a site.
func TestHostsOfManySites(t *testing.T) {
	var hosts []string
	for i := range 150 {
		hosts = append(hosts, fmt.Sprintf("h%03d.example.com", i))
	}
	s := serve(t, setup{site: `
		rate_limit {
			zone hosts {
				match host ` + strings.Join(hosts, " ") + `
				key {host}
				rule 3/1h
			}
		}
		@many host ` + strings.Join(hosts, " ") + `
		rate_limit @many {client_ip} 6/1h
		respond ok`})
	for _, host := range []string{"h077.example.com", "H077.example.com", "h077.EXAMPLE.com"} {
		s.want(req{host: host}, 200)
	}
	for _, host := range []string{"H077.Example.Com", "H077.EXAMPLE.COM"} {
		s.want(req{host: host}, 429)
	}
	s.want(req{host: "H078.EXAMPLE.COM"}, 200)
	s.want(req{host: "H079.example.COM"}, 429) // of the address: those that a zone denies count, too
	s.want(req{host: "Other.example.com"}, 200, 200)
}

// TestPlaceholdersOfClients has clients send placeholders where the value of one is read
// (CVE-2026-77281): they are text.
func TestPlaceholdersOfClients(t *testing.T) {
	t.Setenv("DIANA_TEST_SECRET", "opensesame")
	const (
		sent    = "{env.DIANA_TEST_SECRET}"
		braces  = `{"n":"{env.DIANA_TEST_SECRET}"}`
		another = "{http.request.header.X-Other}"
	)
	s := serve(t, setup{site: `
		route {
			vars user {header.X-User}
			map {header.X-User} {mapped} {
				~^(.*)$ "${1}"
			}
			@copied vars_regexp copied {vars.user} ^(.+)$
			rate_limit @copied {
				zone header {
					key {header.X-User}
					rule 1/1h
					respond 429 "of {header.X-User} by {http.rate_limit.exceeded.rule}"
				}
				zone variable {
					key {vars.user}
					rule 1/1h
				}
				zone map {
					key {mapped}
					rule 1/1h
				}
				zone expression {
					key {re.copied.1}
					rule 1/1h
				}
				zone body {
					key {body.n}
					key_missing share
					rule 1/1h
				}
			}
			respond ok
		}`})
	zones := []string{"header", "variable", "map", "expression"}
	q := req{method: http.MethodPost, body: braces, header: map[string]string{"X-User": sent, "Content-Type": asJSON}}
	s.want(q, 200)
	denied := s.want(q, 429)
	if strings.Contains(denied.body+fmt.Sprint(denied.header), "opensesame") {
		t.Errorf("the answer tells the secret: %v %s", denied.header, denied.body)
	}
	for _, zone := range append(zones, "body") {
		if k := s.key(http.MethodGet, zone, sent); k.Rules[0].Remaining != 0 {
			t.Errorf("zone %s: %s is not counted as it was sent", zone, sent)
		}
		if k := s.key(http.MethodGet, zone, "opensesame"); k.Rules[0].Remaining != 1 {
			t.Errorf("zone %s: counted by the value of a placeholder that the client sent", zone)
		}
	}
	// One that would have another value with each request.
	for i, want := range []int{200, 429, 429} {
		s.want(req{header: map[string]string{"X-User": another, "X-Other": fmt.Sprint(i)}, method: http.MethodPost, body: fmt.Sprintf(`{"n":"%d"}`, i)}, want)
	}
	if strings.Contains(s.log.text(), "opensesame") {
		t.Error("the log has the secret")
	}
}

// TestOtherOriginsChangeNothing sends to the admin API what a page of another origin may send without
// being asked, as simple requests of fetch and of forms (CVE-2026-27589): nothing changes.
func TestOtherOriginsChangeNothing(t *testing.T) {
	s, _, _ := serveEditable(t)
	before := s.ask(http.MethodGet, "rules", "").body
	for _, path := range []string{"rules", "rules/edit", "rules/validate", "rules/changes", "explain", "zones/z", "zones/z/key?part=a", "zones/z/keys", "spend", "live", "zones"} {
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "text/plain; application/json"} {
			var headers []string
			if kind != "" {
				headers = []string{"Content-Type", kind, "Origin", "https://elsewhere.example", "Sec-Fetch-Site", "cross-site"}
			}
			for _, body := range []string{`{"zones": {"z": {"enabled": false}}}`, `[{"zone": "z", "enabled": false}]`} {
				if a := s.ask(http.MethodPost, path, body, headers...); a.status < 400 {
					t.Errorf("POST %s as %q: status %d: %s", path, kind, a.status, a.body)
				}
			}
		}
	}
	if after := s.ask(http.MethodGet, "rules", "").body; after != before {
		t.Errorf("the rules were %s and are %s", before, after)
	}
}
