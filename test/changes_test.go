package test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// shell runs caddy rate-limit on a site with this input, and returns what it prints and its error.
func (s *site) shell(input string, args ...string) (string, error) {
	s.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := adminAPI(s.T).ServeHTTP(w, r); err != nil {
			var wrong caddy.APIError
			errors.As(err, &wrong)
			http.Error(w, fmt.Sprintf(`{"error": %q}`, wrong.Err), wrong.HTTPStatus)
		}
	}))
	defer server.Close()
	before, args := args[:0:0], args
	if args[0] == "__complete" { // as a shell does
		before, args = args[:1:1], args[1:]
	}
	return caddyCommand(input, slices.Concat(before, []string{"rate-limit", "--address", strings.TrimPrefix(server.URL, "http://")}, args)...)
}

// caddyCommand runs caddy with this input, and returns what it prints and its error.
func caddyCommand(input string, args ...string) (string, error) {
	root, cmd := &cobra.Command{Use: "caddy", SilenceErrors: true}, &cobra.Command{Use: "rate-limit"}
	caddycmd.Commands()["rate-limit"].CobraFunc(cmd)
	root.AddCommand(cmd)
	var out strings.Builder
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetIn(strings.NewReader(input))
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

// wantShell checks what a command prints.
func (s *site) wantShell(want string, args ...string) {
	s.Helper()
	out, err := s.shell("", args...)
	if err != nil {
		out += "! " + err.Error()
	}
	if !strings.Contains(out, want) {
		s.Errorf("%s:\n%s, want\n%s", strings.Join(args, " "), out, want)
	}
}

// onSources runs a test of a site with a zone z, whose rules come from a file and from Redis.
func onSources(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	redis := redistest.Start(t)
	for name, app := range map[string]string{
		"file":  "rules file " + t.TempDir() + "/rules.json",
		"redis": redisStore(redis.Addr, "timeout 10s") + "rules redis diana:rules",
	} {
		t.Run(name, func(t *testing.T) {
			c := zoneOf(backend{}, "rule 100/1h\nstore local")
			c.app = app
			s := serve(t, c)
			until(t, "the source to be read", func() bool { return s.source().State == "empty" })
			test(t, s)
		})
	}
}

// TestChangesFromTheCommandLine tries a limit in shadow, enforces it and undoes it, with a document
// in a file and in Redis.
func TestChangesFromTheCommandLine(t *testing.T) {
	onSources(t, func(t *testing.T, s *site) {
		zone := func(what string, ok func(z *cli.Zone) bool) {
			t.Helper()
			until(t, what, func() bool { return ok(&s.zones().Zones[0]) })
		}
		s.wantShell("written", "shadow", "z", "on", "--yes", "--reason", "a trial")
		s.wantShell("+           \"limit\": 1,", "set", "z", "1/1h", "--yes")
		zone("the limit in shadow", func(z *cli.Zone) bool { return z.Shadow && z.Rules[0].Limit == 1 })
		s.want(req{}, 200, 200)
		s.wantShell("nothing was written", "shadow", "z", "off")
		if out, err := s.shell("y\n", "shadow", "z", "off"); err != nil || !strings.Contains(out, "-       \"shadow\": true") {
			t.Errorf("%v, %s: want it written after y", err, out)
		}
		zone("the limit to be enforced", func(z *cli.Zone) bool { return !z.Shadow })
		s.want(req{}, 429)
		s.wantShell("-       \"shadow\": true", "rules", "diff")
		s.wantShell("written", "rules", "undo", "--yes")
		zone("the change to be undone", func(z *cli.Zone) bool { return z.Shadow })
		s.want(req{}, 200)
		s.wantShell("+     \"*\": {", "off", "--all", "--yes")
		s.wantShell("nothing changes", "off", "--all", "--yes")
		s.wantShell(`"*": {`, "rules", "get")
		s.wantShell("a trial", "rules", "log")
		s.wantShell("undo: shadow z off", "rules", "log")
		s.wantShell("written", "on", "--all", "--yes")
		s.wantShell("written", "rules", "undo", "--yes")
		s.wantShell("written", "rules", "undo", "--yes")
		s.wantShell("redo: on *", "rules", "log")
		s.wantShell("note: zone z is in shadow: it denies nothing", "block", "z", "192.0.2.1", "1h", "--yes")
		s.wantShell(`! rule "2": want one of 1`, "set", "z", "2", "9/s", "--yes")
		s.wantShell(`! zone "gone"`, "shadow", "gone", "on", "--yes")
		s.wantShell("! /zones/z/rules/0", "set", "z", "1/1h", "burst", "4", "--yes") // sliding_log has none
		s.wantShell("want the name of a zone, or --all", "off")
		s.wantShell("z\n:4", "__complete", "shadow", "")
	})
}

// TestInvalidDocumentIsReplaced has an editor leave a document that is no JSON, and checks that it can be
// read, compared, edited and replaced from the command line.
func TestInvalidDocumentIsReplaced(t *testing.T) {
	dir := t.TempDir()
	source, put, editor := filepath.Join(dir, "rules.json"), filepath.Join(dir, "put.json"), filepath.Join(dir, "editor")
	document := `{"zones": {"z": {"rules": [{"limit": 3, "window": "1h"}]}}}`
	c := zoneOf(backend{}, "rule 100/1h\nstore local")
	c.app = "rules file " + source
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(source, document)
	write(put, document)
	s := serve(t, c)
	for _, broken := range []string{strings.Replace(document, "}]}", "},]}", 1), document + "}", "[]"} {
		write(source, broken)
		s.wantShell(broken, "rules", "get")
		s.wantShell("- "+broken, "rules", "diff", put)
		s.wantShell("! the document is invalid, replace it as a whole", "off", "z", "--yes")
		s.wantShell("written", "rules", "put", put, "--yes")
		s.wantShell(document, "rules", "get")
		write(source, broken)
		write(editor, fmt.Sprintf("#!/bin/sh\ngrep -Fqx '%s' \"$1\" && cp '%s' \"$1\"\n", broken, put))
		t.Setenv("VISUAL", editor)
		s.wantShell("written", "rules", "edit", "--yes")
		s.wantShell("- "+broken, "rules", "diff")
	}
}

// TestPutAndEdit replaces the document by a file and by an editor, in a file and in Redis, and checks
// that one that is invalid, or that the user leaves as it is, is not written.
func TestPutAndEdit(t *testing.T) {
	dir := t.TempDir()
	document := func(limit int) string {
		return fmt.Sprintf(`{"zones": {"z": {"rules": [{"limit": %d, "window": "1h"}]}}}`, limit)
	}
	put, more, editor := filepath.Join(dir, "put.json"), filepath.Join(dir, "more.json"), filepath.Join(dir, "editor")
	script := "#!/bin/sh\n[ \"$1\" = -w ] && sed \"s/\\\"limit\\\": 2/\\\"limit\\\": $LIMIT/\" \"$2\" >\"$2.new\" && mv \"$2.new\" \"$2\"\n"
	if err := errors.Join(os.WriteFile(put, []byte(document(1)), 0o600), os.WriteFile(more, []byte(document(2)), 0o600), os.WriteFile(editor, []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VISUAL", editor+" -w")
	t.Setenv("EDITOR", "false")
	onSources(t, func(t *testing.T, s *site) {
		limit := func(n int64) {
			t.Helper()
			until(t, fmt.Sprint("the limit ", n), func() bool { return s.zones().Zones[0].Rules[0].Limit == n })
		}
		s.wantShell("nothing was written", "rules", "put", put)
		s.wantShell("written", "rules", "put", put, "--yes", "--reason", "a file")
		limit(1)
		s.wantShell("nothing changes", "rules", "put", put, "--yes")
		s.wantShell(`"valid": true`, "rules", "put", put, "--yes", "--json")
		s.wantShell("--json: a difference is no JSON", "rules", "diff", put, "--json")
		s.wantShell("+           \"limit\": 2,", "rules", "put", more, "--yes")
		limit(2)
		t.Setenv("LIMIT", "2")
		s.wantShell("nothing changes", "rules", "edit", "--yes")
		t.Setenv("LIMIT", "-2")
		s.wantShell("! /zones/z/rules/0: limit -2: want at least 1", "rules", "edit", "--yes")
		t.Setenv("LIMIT", "3")
		s.wantShell("+           \"limit\": 3,", "rules", "edit", "--yes", "--reason", "an editor")
		limit(3)
		s.wantShell("\"limit\": 3", "rules", "get")
		for _, line := range []string{"rules put   a file", "rules edit  an editor"} {
			s.wantShell(line, "rules", "log")
		}
		t.Setenv("VISUAL", "false")
		s.wantShell("! false: exit status 1", "rules", "edit", "--yes")
		limit(3)
	})
}

// TestNothingToWrite checks that page and command line say which line to add if there is no source
// that can be written.
func TestNothingToWrite(t *testing.T) {
	s := serve(t, zoneOf(backend{}, "rule 1/1h"))
	s.wantShell("add rules redis diana:rules (with store redis), or rules file <path>", "shadow", "z", "on", "--yes")
	c := zoneOf(backend{}, "rule 1/1h")
	c.app = "rules http http://127.0.0.1:1/rules"
	s.reload(c)
	s.wantShell("come from http, which is not written from here", "rules", "get")
	s.wantAnswer(s.ask("POST", "rules/edit", "[]", "Content-Type", asJSON), 409, "rules file <path>")
}

// TestEditAnswers checks the answers about edits and changes.
func TestEditAnswers(t *testing.T) {
	s, _, _ := serveEditable(t)
	s.wantAnswer(s.ask("GET", "rules/edit", ""), 405, "want POST")
	s.wantAnswer(s.ask("PUT", "rules/changes", ""), 405, "want GET")
	s.wantAnswer(s.ask("POST", "rules/edit", "[]"), 415, "application/json")
	s.wantAnswer(s.ask("POST", "rules/edit", "{}", "Content-Type", asJSON), 400, "want a list of edits")
	s.wantAnswer(s.ask("POST", "rules/edit", "[{\"do\": \"off\", \"zone\": \"\xff\"}]", "Content-Type", asJSON), 400, "line 1, column 25: byte 0xff: want UTF-8")
	s.wantAnswer(s.ask("POST", "rules/edit", `[{"do": "undo"}]`, "Content-Type", asJSON), 400, "undo")
	a := s.wantAnswer(s.ask("POST", "rules/edit", `[{"do": "off", "zone": "z"}]`, "Content-Type", asJSON), 200, `"valid": true`)
	if want := `"after":"{\n  \"zones\": {\n    \"z\": {\n      \"enabled\": false`; !strings.Contains(compacted(t, a.body), want) {
		t.Errorf("%s, want %s", a.body, want)
	}
	s.wantAnswer(s.ask("GET", "rules/changes", ""), 200, `"changes": null`)
	s.wantAnswer(s.ask("PUT", "rules?who="+strings.Repeat("%C3%A9", 300)+"&what=test", `{"zones": {}}`, "Content-Type", asJSON, "If-Match", "*"), 200, "")
	if a := s.wantAnswer(s.ask("GET", "rules/changes", ""), 200, `"what": "test"`); strings.Count(a.body, "é") != 250 {
		t.Errorf("%s: want who cut to 500 bytes", a.body)
	}
}
