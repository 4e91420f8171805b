package test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/trace"
	"github.com/dianalimiter/diana/rules"
)

// snippet is a fenced code block of a document.
type snippet struct {
	file string
	line int
	lang string
	text string
	then string // the trace that follows a Caddyfile
}

func (s snippet) String() string { return fmt.Sprintf("%s:%d", s.file, s.line) }

// documents returns the documents whose Caddyfiles and commands are run.
func documents(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"README*.md", ".github/*.md", "docs/*.md", "docs/internals/*.md", "examples/*.md", "examples/*/*.md", "benchmarks/*.md", "scripts/*.md"} {
		files = append(files, glob(t, pattern)...)
	}
	if len(files) < 8 {
		t.Fatalf("documents: only %v", files)
	}
	return files
}

// snippets returns the fenced code blocks of all documents.
func snippets(t *testing.T) (list []snippet) {
	t.Helper()
	for _, file := range documents(t) {
		var open *snippet
		n := 0
		for line := range strings.Lines(textOf(t, file)) {
			n++
			fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
			switch {
			case isFence && open == nil:
				open = &snippet{file: file, line: n, lang: fence}
			case isFence:
				if last := len(list) - 1; open.lang == "requests" && last >= 0 && list[last].file == file {
					list[last].then += open.text
				} else {
					list = append(list, *open)
				}
				open = nil
			case open != nil:
				open.text += line
			}
		}
		if open != nil {
			t.Errorf("%v: the block has no end", open)
		}
	}
	return list
}

// TestDocumentedCaddyfiles loads every Caddyfile of the documentation and runs the
// trace below it, if any. Its stores are a real Redis.
func TestDocumentedCaddyfiles(t *testing.T) {
	upstream := documentedUpstream(t)
	caddyfiles, traced, requests := 0, 0, 0
	for _, sn := range snippets(t) {
		if sn.lang != "caddyfile" && sn.then != "" {
			t.Errorf("%v: the trace follows no Caddyfile", sn)
		}
		if sn.lang != "caddyfile" {
			continue
		}
		caddyfiles++
		t.Run(sn.String(), func(t *testing.T) {
			s := newSite(t)
			adapted, err := trace.Adapt(localize(t, sn.text))
			if err != nil {
				t.Fatal(err)
			}
			checkAdapted(t, adapted)
			p := trace.Place{Upstream: upstream}
			if sn.then == "" {
				validateText(s, adapted, p)
				return
			}
			if strings.Contains(sn.text, "store redis") {
				p.Redis = redistest.Start(t).Addr
			}
			host, err := s.loadText(adapted, p)
			if err != nil {
				t.Fatal(err)
			}
			traced++
			requests += s.runAs(host, sn.then)
		})
	}
	t.Logf("%d Caddyfiles, %d of them with requests, %d requests", caddyfiles, traced, requests)
}

// runAs runs a trace against the site. Requests that name no host are sent to
// host.
func (s *site) runAs(host, text string) (requests int) {
	s.Helper()
	steps, err := trace.Parse(text)
	if err != nil {
		s.Fatal(err)
	}
	for i := range steps {
		steps[i].Host = cmp.Or(steps[i].Host, host)
	}
	n, err := trace.Run(s.client, s.url, steps)
	if err != nil {
		s.Error(err)
	}
	return n
}

// localize replaces the files of a Caddyfile, and the environment variables without a default, with
// ones that exist on this machine.
func localize(t *testing.T, text string) string {
	t.Helper()
	for _, name := range regexp.MustCompile(`\{\$?(?:env\.)?([A-Z_]+)\}`).FindAllStringSubmatch(text, -1) {
		t.Setenv(name[1], "127.0.0.1")
	}
	dir := t.TempDir()
	certificate, key := writeCertificate(t, dir)
	return regexp.MustCompile(`/(?:etc|run|var)/[\w./-]+`).ReplaceAllStringFunc(text, func(path string) string {
		switch {
		case strings.HasPrefix(path, "/run/redis"):
			return path // a socket that is never opened
		case strings.Contains(path, "key"):
			return key
		case strings.HasSuffix(path, ".json"):
			return filepath.Join(dir, "rules.json")
		}
		return certificate
	})
}

// validateText validates adapted JSON as caddy validate does.
func validateText(s *site, adapted []byte, p trace.Place) {
	s.Helper()
	p.Storage = s.storage
	moved, _, err := p.Move(adapted)
	if err != nil {
		s.Fatal(err)
	}
	var config caddy.Config
	if err := caddy.StrictUnmarshalJSON(moved, &config); err != nil {
		s.Fatal(err)
	}
	if err := caddy.Validate(&config); err != nil {
		s.Error(err)
	}
}

// documentedUpstream starts the server that the documentation has at
// localhost:9000. It returns the value of X-Ask as X-Tokens and as the usage of a
// language model, and what a bearer token says as X-Account and X-Plan, responds 401 to the
// password "wrong" and 404 to /missing, delays /slow, and accepts WebSockets until the client closes
// them.
func documentedUpstream(t *testing.T) (address string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := r.Header.Get("X-Ask"); n != "" {
			w.Header().Set("X-Tokens", n)
			w.Header().Set("Content-Type", "application/json")
		}
		if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok { // <account>.<plan>
			account, plan, _ := strings.Cut(token, ".")
			w.Header().Set("X-Account", account)
			w.Header().Set("X-Plan", plan)
		}
		switch {
		case r.Header.Get("Upgrade") != "":
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_, _ = c.Read(make([]byte, 1)) // until the client closes it
				_ = c.Close()
			}
			return
		case strings.HasPrefix(r.URL.Path, "/slow"):
			time.Sleep(1500 * time.Millisecond)
		case strings.HasPrefix(r.URL.Path, "/missing"):
			w.WriteHeader(http.StatusNotFound)
		case r.Header.Get("X-Password") == "wrong":
			w.WriteHeader(http.StatusUnauthorized)
		}
		if n := r.Header.Get("X-Ask"); n != "" {
			_, _ = fmt.Fprintf(w, `{"usage": {"prompt_tokens": 0, "completion_tokens": %s}}`, n)
			return
		}
		_, _ = fmt.Fprintf(w, "hello from %s", r.URL.Path)
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// TestDocumentedJSON parses every JSON block of the documentation and loads those
// that are a handler, a configuration or a rules document.
func TestDocumentedJSON(t *testing.T) {
	n := 0
	for _, sn := range snippets(t) {
		if sn.lang != "json" {
			continue
		}
		n++
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(sn.text), &fields); err != nil {
			t.Errorf("%v: %v", sn, err)
			continue
		}
		switch {
		case fields["handler"] != nil:
			if err := validate(t, "", sn.text); err != nil {
				t.Errorf("%v: %v", sn, err)
			}
		case fields["apps"] != nil:
			validateText(newSite(t), []byte(localize(t, sn.text)), trace.Place{})
		case fields["zones"] != nil:
			if _, err := rules.Parse([]byte(sn.text)); err != nil {
				t.Errorf("%v: %v", sn, err)
			}
		default:
			t.Errorf("%v: neither a handler, a configuration nor a rules document", sn)
		}
	}
	t.Logf("%d blocks of JSON", n)
}

// TestChineseReadme checks that both READMEs have the same code blocks, inline
// code, links, numbers, headings and tables.
func TestChineseReadme(t *testing.T) {
	english, chinese := textOf(t, "README.md"), fromRoot(textOf(t, "docs/README.zh-CN.md"))
	figure := regexp.MustCompile(`\d[\d.,]*(?: us| %|x)?`)
	for what, of := range map[string]func(text string) []string{
		"block": func(text string) []string { return regexp.MustCompile("(?s)```.*?```").FindAllString(text, -1) },
		"word": func(text string) []string {
			return regexp.MustCompile("`[^`\n]+`").FindAllString(withoutBlocks(text), -1)
		},
		"link": func(text string) []string {
			return regexp.MustCompile(`\]\((?:https|docs|\.github|[A-Z]+\b)[^)]*\)`).FindAllString(text, -1)
		},
		"headings": func(text string) []string {
			return regexp.MustCompile(`(?m)^#+ `).FindAllString(withoutBlocks(text), -1)
		},
		"figure": func(text string) []string {
			_, figures, _ := strings.Cut(text, "`make bench`")
			figures, _, _ = strings.Cut(figures, "\n## ")
			return figure.FindAllString(figures, -1)
		},
	} {
		// Sentences may have another order.
		a, b := slices.Sorted(slices.Values(of(english))), slices.Sorted(slices.Values(of(chinese)))
		a, b = slices.Compact(a), slices.Compact(b)
		a, b = slices.DeleteFunc(a, toOtherReadme), slices.DeleteFunc(b, toOtherReadme)
		if len(a) == 0 {
			t.Errorf("README.md has no %s", what)
		}
		for _, v := range a {
			if !slices.Contains(b, v) {
				t.Errorf("%s %q is in README.md but not in README.zh-CN.md", what, v)
			}
		}
		for _, v := range b {
			if !slices.Contains(a, v) {
				t.Errorf("%s %q is in README.zh-CN.md but not in README.md", what, v)
			}
		}
	}
	if n, m := strings.Count(english, "\n## "), strings.Count(chinese, "\n## "); n != m {
		t.Errorf("README.md has %d sections, docs/README.zh-CN.md %d", n, m)
	}
	if n, m := strings.Count(english, "\n|"), strings.Count(chinese, "\n|"); n != m {
		t.Errorf("README.md has %d lines of tables, docs/README.zh-CN.md %d", n, m)
	}
}

// fromRoot rewrites the links of a document in docs/ to be relative to the root.
func fromRoot(text string) string {
	text = regexp.MustCompile(`\]\(([a-z-]+\.md|page/|internals/)`).ReplaceAllString(text, "](docs/$1")
	return strings.ReplaceAll(text, "](../", "](")
}

// withoutBlocks removes the fenced code blocks from a text.
func withoutBlocks(text string) string {
	return regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
}

// toOtherReadme reports whether a link leads to the other language's README.
func toOtherReadme(v string) bool { return strings.Contains(v, "README.") }

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestDocumentedLinks checks that every link to a file of this repository, and to
// a heading in it, has a target.
func TestDocumentedLinks(t *testing.T) {
	n, anchors := 0, make(map[string][]string) // by page
	for _, file := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(textOf(t, file), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			n++
			path, heading, _ := strings.Cut(m[1], "#")
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			} else if heading == "" {
				continue
			}
			if anchors[target] == nil {
				anchors[target] = headings(textOf(t, target))
			}
			if !slices.Contains(anchors[target], heading) {
				t.Errorf("%s: %s has no heading #%s", file, target, heading)
			}
		}
	}
	t.Logf("%d links", n)
}

// TestPagesHaveNoTags checks that no page has text in angle brackets outside of code: readers of
// GitHub would not see it, and the site could not be built.
func TestPagesHaveNoTags(t *testing.T) {
	code := regexp.MustCompile("(?s)<!--.*?-->|``.+?``|`[^`]*`|<https?:[^>]*>")
	tag := regexp.MustCompile(`</?\p{L}[^>\n]*>?`)
	for _, file := range documents(t) {
		if found := tag.FindString(code.ReplaceAllString(withoutBlocks(textOf(t, file)), "")); found != "" {
			t.Errorf("%s: %s outside of code", file, found)
		}
	}
}

// TestLongPagesHaveContents checks that a page of more than 100 lines begins with links to
// its sections.
func TestLongPagesHaveContents(t *testing.T) {
	for _, file := range slices.Concat(glob(t, "docs/*.md"), glob(t, "docs/internals/*.md")) {
		text := withoutBlocks(textOf(t, file))
		if strings.Count(textOf(t, file), "\n") <= 100 || toOtherReadme(file) {
			continue
		}
		intro, sections, _ := strings.Cut(text, "\n## ")
		for _, m := range regexp.MustCompile(`(?m)^## .+$`).FindAllString("## "+sections, -1) {
			if anchor := headings(m)[0]; !strings.Contains(intro, "](#"+anchor+")") {
				t.Errorf("%s does not begin with a link to #%s", file, anchor)
			}
		}
	}
}

var (
	headingLine = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// headings returns the anchors that GitHub generates for a document's headings.
func headings(text string) (anchors []string) {
	seen := make(map[string]int)
	for _, m := range headingLine.FindAllStringSubmatch(text, -1) {
		a := strings.ToLower(notInAnchor.ReplaceAllString(m[1], ""))
		a = strings.ReplaceAll(a, " ", "-")
		seen[a]++
		if n := seen[a]; n > 1 {
			a += "-" + strconv.Itoa(n-1)
		}
		anchors = append(anchors, a)
	}
	return anchors
}
