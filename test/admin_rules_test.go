package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/testdir"
	"github.com/dianalimiter/diana/rules"
)

// ask sends a request about rules to the handler of the admin API, with headers in
// pairs.
func (s *site) ask(method, path, body string, headers ...string) *answer {
	s.Helper()
	r := httptest.NewRequestWithContext(s.Context(), method, "http://localhost:2019/rate_limit/"+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	err := adminAPI(s.T).ServeHTTP(w, r)
	var wrong caddy.APIError
	if errors.As(err, &wrong) {
		return &answer{wrong.HTTPStatus, w.Header(), wrong.Err.Error()}
	}
	if err != nil {
		s.Fatal(err)
	}
	return &answer{w.Code, w.Header(), w.Body.String()}
}

// compacted returns JSON without spaces.
func compacted(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return b.String()
}

const asJSON = "application/json"

// put replaces the document of the rules.
func (s *site) put(document string, headers ...string) *answer {
	s.Helper()
	return s.ask(http.MethodPut, "rules", document, append([]string{"Content-Type", asJSON}, headers...)...)
}

// wantAnswer checks the status and a part of the body.
func (s *site) wantAnswer(a *answer, status int, part string) *answer {
	s.Helper()
	if a.status != status || !strings.Contains(a.body, part) {
		s.Errorf("status %d: %.300s, want %d: %s", a.status, a.body, status, part)
	}
	return a
}

// serveEditable serves a zone z whose rules come from Redis.
func serveEditable(t *testing.T, options ...string) (*site, *redistest.Server, *redis.Client) {
	server := redistest.Start(t)
	c := zoneOf(backend{server}, "rule 1/100h")
	c.app = redisStore(server.Addr, append(options, "timeout 10s")...) + "rules redis diana:rules {\ninterval 1h\n}"
	s := serve(t, c)
	until(t, "the source to be read", func() bool { return s.source().State == "empty" })
	return s, server, server.Client()
}

// TestValidate checks that validating a document says what would be wrong with it, and
// changes nothing.
func TestValidate(t *testing.T) {
	s := serveRuled(t, zoneOf(backend{}, "rule 2/100h"))
	s.want(req{}, 200)
	for document, want := range map[string]string{
		zoneDocument(`{"rules": [{"limit": 9, "window": "100h"}]}`):                              `{"valid":true,"zones":1}`,
		zoneDocument(`{"rules": [{"limit": 9, "window": "1h", "algorithm": {"name": "gcra"}}]}`): `{"valid":true,"zones":1}`,
		`{"zones": {"*": {"enabled": false}, "gone": {}, "z": {}}}`:                              `{"valid":true,"zones":2,"unknown_zones":["gone"]}`,
		zoneDocument(`{"rules": [{"limit": "1", "window": "1s"}]}`):                              `{"valid":false,"error":"/zones/z/rules/0/limit: \"1\": want a whole number","pointer":"/zones/z/rules/0/limit"}`,
		zoneDocument(`{"rules": [{"limit": 1, "window": "1s", "algorithm": {"name": "x"}}]}`):    `"pointer":"/zones/z/rules/0"}`,
		zoneDocument(`{"overrides": [{"key": ["10.0.0.0/33", "x"], "rules": []}]}`):              `"pointer":"/zones/z/overrides/0"}`,
		`{"zones": {"gone": {"rules": 7}}}`:                                                      `"pointer":"/zones/gone/rules"}`,
		`{"zones"`:                                                                               `{"valid":false,"error":"line 1, column`,
		"":                                                                                       `{"valid":false,"error":"line 1, column 1: not JSON`,
		`{}`:                                                                                     `"error":"no \"zones\"`,
		strings.Repeat("[", 100_000):                                                             `exceeded max depth`,
		"{\"zones\": {\"\\u001b<x>\": 1}}":                                                       `"pointer":"/zones/\\x1b\u003cx\u003e"}`,
		strings.Repeat(" ", rules.MaxSize)[1:]:                                                   `not JSON`,
	} {
		a := s.ask("POST", "rules/validate", document, "Content-Type", asJSON)
		compact := compacted(t, a.body)
		if a.status != 200 || !strings.Contains(compact, want) {
			t.Errorf("%.80s: status %d: %s, want %s", document, a.status, compact, want)
		}
	}
	s.want(req{}, 200, 429) // nothing changed
	wantPools(t, 1, 0)
	s.wantAnswer(s.ask("GET", "rules/validate", ""), 405, "want POST")
	s.wantAnswer(s.ask("POST", "rules/validate", "{}", "Content-Type", "text/plain"), 415, "application/json")
	s.wantAnswer(s.ask("POST", "rules/validate", strings.Repeat(" ", rules.MaxSize+1), "Content-Type", asJSON), 413, "over 1048576 bytes")
	s.wantAnswer(s.ask("GET", "rules", ""), 200, `{"zones": {}}`)
	s.reload(zoneOf(backend{}, "rule 2/100h"))
	s.wantAnswer(s.ask("GET", "rules", ""), 404, "no source of rules")
	s.wantAnswer(s.ask("POST", "rules/validate", `{"zones": {"z": 1}}`, "Content-Type", asJSON), 200, "want an object")
}

// TestWriteRules reads and writes the document in Redis as two operators would.
func TestWriteRules(t *testing.T) {
	s, server, client := serveEditable(t)
	ctx := context.Background()
	none := s.wantAnswer(s.ask("GET", "rules", ""), 200, `{"zones": {}}`).get("ETag")
	s.want(req{}, 200, 429)

	first := zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}]}`) + "\n"
	a := s.wantAnswer(s.put(first, "If-Match", none), 200, `"valid": true`)
	until(t, "the rules", func() bool { return s.source().State == "ok" })
	s.want(req{}, 200, 200, 429)
	got := s.wantAnswer(s.ask("GET", "rules", ""), 200, first)
	if tag := got.get("ETag"); tag != a.get("ETag") || tag == none || got.body != first || got.get("Content-Type") != asJSON || got.get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%q %v, want the tag %q", got.body, got.header, a.get("ETag"))
	}

	second := zoneDocument(`{"enabled": false}`)
	s.wantAnswer(s.put(second, "If-Match", none), 412, "another")
	s.wantAnswer(s.put(second, "If-Match", "W/"+a.get("ETag")), 412, "another") // a weak tag is equal to none
	s.wantAnswer(s.put(second), 428, "If-Match")
	s.wantAnswer(s.put(second, "If-Match", ""), 428, "If-Match")
	s.wantAnswer(s.put(zoneDocument(`{"rules": []}`), "If-Match", a.get("ETag")), 422, `"pointer": "/zones/z"`)
	s.wantAnswer(s.ask("PUT", "rules", second, "If-Match", "*"), 415, "application/json")
	s.wantAnswer(s.ask("PUT", "rules", second, "If-Match", "*", "Content-Type", "application/x-www-form-urlencoded"), 415, "application/json")
	s.wantAnswer(s.put(strings.Repeat(" ", rules.MaxSize+1), "If-Match", "*"), 413, "over 1048576 bytes")
	s.wantAnswer(s.ask("DELETE", "rules", ""), 405, "want GET, PUT")
	s.wantAnswer(s.ask("GET", "rules/", ""), 404, "no such endpoint")
	if now := client.Get(ctx, "diana:rules").Val(); now != first {
		t.Fatalf("the document is %q", now)
	}
	b := s.wantAnswer(s.put(second, "If-Match", `"x", `+a.get("ETag")), 200, `"zones": 1`)
	until(t, "the zone to be off", func() bool { return !s.zones().Zones[0].Enabled })

	// What others wrote can be read and replaced, whatever it is.
	for _, bad := range []string{`{"zones": 7}`, "\xff<html>", strings.Repeat("x", rules.MaxSize)} {
		client.Set(ctx, "diana:rules", bad, time.Hour)
		s.wantAnswer(s.put(first, "If-Match", b.get("ETag")), 412, "another")
		if got := s.ask("GET", "rules", ""); got.body != bad || got.status != 200 {
			t.Errorf("%.20q: %d %.100q", bad, got.status, got.body)
		} else {
			s.wantAnswer(s.put(first, "If-Match", got.get("ETag")), 200, "true")
		}
		if ttl := client.TTL(ctx, "diana:rules").Val(); ttl != -1 {
			t.Errorf("the document expires in %v", ttl)
		}
	}
	client.Set(ctx, "diana:rules", strings.Repeat("x", rules.MaxSize+1), 0)
	s.wantAnswer(s.ask("GET", "rules", ""), 503, "over 1048576 bytes")
	s.wantAnswer(s.put(first, "If-Match", a.get("ETag")), 412, "another")
	s.wantAnswer(s.put(first, "If-Match", "*"), 200, "true")
	client.Del(ctx, "diana:rules")
	s.wantAnswer(s.put(first, "If-Match", none), 200, "true")
	client.Del(ctx, "diana:rules")
	client.HSet(ctx, "diana:rules", "a", "b")
	s.wantAnswer(s.ask("GET", "rules", ""), 409, "WRONGTYPE")
	s.wantAnswer(s.put(first, "If-Match", "*"), 409, "WRONGTYPE")
	server.Kill()
	const away = "the rules cannot be read or changed while their Redis is unavailable; those in force stay: key diana:rules: "
	s.wantAnswer(s.ask("GET", "rules", ""), 503, away)
	s.wantAnswer(s.put(first, "If-Match", "*"), 503, away)
}

// TestLostDocumentIsShown checks that after Redis has lost the document, the one in force is
// read and can be written again: a change that began with an empty one would drop its rules.
func TestLostDocumentIsShown(t *testing.T) {
	s, _, client := serveEditable(t)
	ctx := context.Background()
	empty := s.ask("GET", "rules", "")
	if state := empty.get("Rate-Limit-Rules"); state != "" {
		t.Errorf("the state is %q, want none: there never was a document", state)
	}
	document := zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}]}`)
	s.wantAnswer(s.put(document, "If-Match", empty.get("ETag")), 200, "true")
	until(t, "the rules", func() bool { return s.source().State == "ok" })
	client.Del(ctx, "diana:rules")
	client.Publish(ctx, "diana:rules", "")
	until(t, "the loss", func() bool { return s.source().State == "away" })
	if r := s.source(); !r.Lost || r.Error != "Redis has lost the document: its rules stay in force; write it again: Change these rules on the page, or GET and PUT /rate_limit/rules" {
		t.Errorf("%+v", r)
	}
	lost := s.wantAnswer(s.ask("GET", "rules", ""), 200, document)
	if lost.get("Rate-Limit-Rules") != "lost" || lost.get("ETag") != empty.get("ETag") {
		t.Errorf("%v, want the state lost, and the tag %s of what is in Redis", lost.header, empty.get("ETag"))
	}
	s.wantAnswer(s.put(lost.body, "If-Match", lost.get("ETag")), 200, "true")
	until(t, "the document", func() bool { return s.source().State == "ok" })
	client.Del(ctx, "diana:rules")
	client.Publish(ctx, "diana:rules", "")
	until(t, "the second loss", func() bool { return s.source().State == "away" })
	file := filepath.Join(testdir.New(t), "rules.json")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := s.shell("", "rules", "put", file, "--yes"); err != nil || !strings.Contains(out, "written") {
		t.Errorf("%q %v, want it written: the source has lost it", out, err)
	}
	until(t, "the document again", func() bool { return s.source().State == "ok" })
	if got := s.ask("GET", "rules", ""); got.body != document || got.get("Rate-Limit-Rules") != "" {
		t.Errorf("%q %v", got.body, got.header)
	}
	s.want(req{}, 200, 200, 200, 429)
}

// TestChangesAfterLoss ends what a document says after Redis has lost it: that leaves an empty document, which has
// to be written, because the one that is lost is still in force.
func TestChangesAfterLoss(t *testing.T) {
	file := filepath.Join(testdir.New(t), "rules.json")
	if err := os.WriteFile(file, []byte(rules.NoDocument), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ begins, ends []string }{
		{[]string{"block", "z", "127.0.0.1", "1h"}, []string{"unblock", "z", "127.0.0.1"}},
		{[]string{"set", "z", "1/100h"}, []string{"set", "z", "configured"}},
		{[]string{"set", "z", "1/100h"}, []string{"rules", "put", file}},
	} {
		t.Run(strings.Join(c.ends[:2], " "), func(t *testing.T) {
			s, _, client := serveEditable(t)
			change := func(words []string) {
				t.Helper()
				if out, err := s.shell("", append(words, "--yes")...); err != nil || !strings.Contains(out, "written") {
					t.Fatalf("%q: %q %v", words, out, err)
				}
				until(t, "the document", func() bool { return s.source().State == "ok" })
			}
			change(c.begins)
			client.Del(context.Background(), "diana:rules")
			client.Publish(context.Background(), "diana:rules", "")
			until(t, "the loss", func() bool { return s.source().Lost })
			change(c.ends)
			until(t, "the zone's own rules", func() bool { return s.zones().Zones[0].Origin == "config" })
			s.want(req{}, 200, 429)
		})
	}
}

// TestWrittenRulesOutliveAStop stops the process right after each answer to a PUT, and has Redis lose the document.
// The one that was written is in force after the start.
func TestWrittenRulesOutliveAStop(t *testing.T) {
	server := redistest.Start(t)
	c := zoneOf(backend{server}, "rule 1/100h")
	c.app = redisStore(server.Addr, "timeout 10s") + "rules redis diana:rules {\ninterval 1h\n}"
	s := serve(t, c)
	until(t, "the source to be read", func() bool { return s.source().State == "empty" })
	for limit := range int64(5) {
		for n := range int64(2) { // the second within the time between two readings
			tag := s.ask("GET", "rules", "").get("ETag")
			s.wantAnswer(s.put(zoneDocument(fmt.Sprintf(`{"rules": [{"limit": %d, "window": "100h"}]}`, 10*limit+n+2)), "If-Match", tag), 200, "true")
		}
		if err := stopCaddy(); err != nil {
			t.Fatal(err)
		}
		server.Client().Del(t.Context(), "diana:rules")
		s.reload(c)
		if z := s.zones().Zones[0]; z.Rules[0].Limit != 10*limit+3 {
			t.Fatalf("limit %d is in force after the start, want %d", z.Rules[0].Limit, 10*limit+3)
		}
		until(t, "the loss", func() bool { return s.source().Lost })
	}
}

// TestConcurrentWritesOfRules checks that of many who change the same document one
// succeeds, with each version.
func TestConcurrentWritesOfRules(t *testing.T) {
	s, _, _ := serveEditable(t)
	tag := s.ask("GET", "rules", "").get("ETag")
	for round := range 20 {
		var won atomic.Int64
		var mu sync.Mutex
		next := ""
		parallel(8, func(i int) {
			a := s.put(zoneDocument(fmt.Sprintf(`{"rules": [{"limit": %d, "window": "100h"}]}`, 1+8*round+i)), "If-Match", tag)
			switch a.status {
			case 200:
				won.Add(1)
				mu.Lock()
				next = a.get("ETag")
				mu.Unlock()
			case 412:
			default:
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
		if now := s.ask("GET", "rules", "").get("ETag"); won.Load() != 1 || now != next {
			t.Fatalf("round %d: %d writes succeeded, want 1; the tag is %s, want %s", round, won.Load(), now, next)
		}
		tag = next
	}
}

// TestWriteRulesWithDocumentedRights checks that writing needs the rights in docs/redis.md and
// those that it adds for rules, and no other, and what happens without them.
func TestWriteRulesWithDocumentedRights(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	allow := func(marker string) (rights string) {
		t.Helper()
		_, rights, _ = strings.Cut(textOf(t, "docs/redis.md"), "<!-- "+marker+" -->\n```\nuser diana on >change-me ")
		rights, _, _ = strings.Cut(rights, "\n")
		args := []any{"ACL", "SETUSER", "diana", "reset", "on", ">change-me"}
		for _, right := range strings.Fields(rights) {
			args = append(args, right)
		}
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		return rights
	}
	decisions := allow("acl")
	c := zoneOf(backend{server}, "rule 1/100h")
	c.app = redisStore(server.Addr, "timeout 10s", "username diana", "password change-me") + "rules redis diana:rules"
	s := serve(t, c)
	const needed = "+watch +unwatch +multi +exec"
	if a := s.wantAnswer(s.put(`{"zones": {}}`, "If-Match", "*"), 503, "NOPERM"); !strings.Contains(a.body, needed) {
		t.Errorf("%s: want %s", a.body, needed)
	}
	if got, want := allow("acl with rules"), decisions+" "+needed; got != want {
		t.Errorf("docs/redis.md has the rights %s, want %s", got, want)
	}
	document := zoneDocument(`{"rules": [{"limit": 3, "window": "100h"}]}`)
	s.wantAnswer(s.put(document, "If-Match", "*"), 200, "true")
	until(t, "the rules", func() bool { return s.source().State == "ok" })
	for _, right := range []string{"watch", "multi", "exec", "set", "publish", "getrange"} {
		client.Do(t.Context(), "ACL", "SETUSER", "diana", "-"+right)
		s.wantAnswer(s.put(zoneDocument(`{"enabled": false}`), "If-Match", "*"), 503, "permission")
		client.Do(t.Context(), "ACL", "SETUSER", "diana", "+"+right)
	}
	if got := s.ask("GET", "rules", ""); got.body != document {
		t.Errorf("the document is %q", got.body)
	}
}
