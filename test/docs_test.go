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

	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/trace"
	"github.com/dianalimiter/diana/rules"
)

// snippet is a fenced block of a document.
type snippet struct {
	file string
	line int
	lang string
	text string
	then string // the requests that follow a Caddyfile
}

func (s snippet) String() string { return fmt.Sprintf("%s:%d", s.file, s.line) }

// documents are those whose every Caddyfile and command is run.
func documents(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"README*.md", ".github/*.md", "docs/*.md", "examples/*.md", "examples/*/*.md", "benchmarks/*.md", "scripts/*.md"} {
		files = append(files, glob(t, pattern)...)
	}
	if len(files) < 8 {
		t.Fatalf("only %v", files)
	}
	return files
}

// snippets are the fenced blocks of all documents.
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

// TestDocumentedCaddyfiles loads every Caddyfile of the documentation, and puts
// the requests below it to it, as many as there are. Where it has a store, that
// is a real Redis.
func TestDocumentedCaddyfiles(t *testing.T) {
	upstream := documentedUpstream(t)
	caddyfiles, traced, requests := 0, 0, 0
	for _, sn := range snippets(t) {
		if sn.lang != "caddyfile" && sn.then != "" {
			t.Errorf("%v: requests that follow no Caddyfile", sn)
		}
		if sn.lang != "caddyfile" {
			continue
		}
		caddyfiles++
		t.Run(sn.String(), func(t *testing.T) {
			s := newSite(t)
			adapted, err := trace.Adapt(atHome(t, sn.text))
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

// runAs puts a trace to the running site, as to host where it names none.
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

// atHome writes what a Caddyfile says of its machine so that it is true of this
// one: files, and the environment.
func atHome(t *testing.T, text string) string {
	t.Helper()
	for _, name := range regexp.MustCompile(`\{\$?(?:env\.)?([A-Z_]+)(?::[^}]*)?\}`).FindAllStringSubmatch(text, -1) {
		t.Setenv(name[1], "127.0.0.1")
	}
	dir := t.TempDir()
	certificate, key := writeCertificate(t, dir)
	return regexp.MustCompile(`/(?:etc|run|var)/[\w./-]+`).ReplaceAllStringFunc(text, func(path string) string {
		switch {
		case strings.HasPrefix(path, "/run/redis"):
			return path // a socket, which nobody opens here
		case strings.Contains(path, "key"):
			return key
		case strings.HasSuffix(path, ".json"):
			return filepath.Join(dir, "rules.json")
		}
		return certificate
	})
}

// validateText does what caddy validate does.
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

// documentedUpstream is what stands behind localhost:9000 in the documentation.
// It answers with X-Tokens as asked by X-Ask, 401 to a password of "wrong", takes
// its time for /slow, and takes WebSockets, which last until the client leaves.
func documentedUpstream(t *testing.T) (address string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := r.Header.Get("X-Ask"); n != "" {
			w.Header().Set("X-Tokens", n)
		}
		switch {
		case r.Header.Get("Upgrade") != "":
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_, _ = c.Read(make([]byte, 1)) // until it ends
				_ = c.Close()
			}
			return
		case strings.HasPrefix(r.URL.Path, "/slow"):
			time.Sleep(1500 * time.Millisecond)
		case r.Header.Get("X-Password") == "wrong":
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = fmt.Fprintf(w, "hello from %s", r.URL.Path)
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// TestDocumentedJSON reads every JSON of the documentation, and loads what is a
// handler, a configuration or a document of rules.
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
			validateText(newSite(t), []byte(sn.text), trace.Place{})
		case fields["zones"] != nil:
			if _, err := rules.Parse([]byte(sn.text)); err != nil {
				t.Errorf("%v: %v", sn, err)
			}
		default:
			t.Errorf("%v: neither a handler, a configuration nor a document of rules", sn)
		}
	}
	t.Logf("%d blocks of JSON", n)
}

// TestChineseReadme holds both READMEs to have the same blocks, the same words in
// code, the same links, headings and figures. What one of them says, the other must.
func TestChineseReadme(t *testing.T) {
	english, chinese := textOf(t, "README.md"), fromRoot(textOf(t, "docs/README.zh-CN.md"))
	figure := regexp.MustCompile(`\d[\d.,]*(?: us| %|x)?`)
	for what, of := range map[string]func(text string) []string{
		"block": func(text string) []string { return regexp.MustCompile("(?s)```.*?```").FindAllString(text, -1) },
		"word":  func(text string) []string { return regexp.MustCompile("`[^`\n]+`").FindAllString(outside(text), -1) },
		"link": func(text string) []string {
			return regexp.MustCompile(`\]\((?:https|docs|\.github|[A-Z]+\b)[^)]*\)`).FindAllString(text, -1)
		},
		"headings": func(text string) []string { return regexp.MustCompile(`(?m)^#+ `).FindAllString(outside(text), -1) },
		"figure": func(text string) []string {
			_, figures, _ := strings.Cut(text, "`make bench`")
			figures, _, _ = strings.Cut(figures, "\n## ")
			return figure.FindAllString(figures, -1)
		},
	} {
		// Sentences may name them in another order.
		a, b := slices.Sorted(slices.Values(of(english))), slices.Sorted(slices.Values(of(chinese)))
		a, b = slices.Compact(a), slices.Compact(b)
		a, b = slices.DeleteFunc(a, ofReadme), slices.DeleteFunc(b, ofReadme)
		if len(a) == 0 {
			t.Errorf("no %s", what)
		}
		for _, v := range a {
			if !slices.Contains(b, v) {
				t.Errorf("%s %q stands in README.md, and not in README.zh-CN.md", what, v)
			}
		}
		for _, v := range b {
			if !slices.Contains(a, v) {
				t.Errorf("%s %q stands in README.zh-CN.md, and not in README.md", what, v)
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

// fromRoot is a text of docs/ with its links as they would be in the root.
func fromRoot(text string) string {
	text = regexp.MustCompile(`\]\(([a-z-]+\.md)`).ReplaceAllString(text, "](docs/$1")
	return strings.ReplaceAll(text, "](../", "](")
}

// outside is a text without its fenced blocks.
func outside(text string) string {
	return regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
}

// ofReadme says of a link that it leads to the other language.
func ofReadme(v string) bool { return strings.Contains(v, "README.") }

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestDocumentedLinks follows every link to a file of this repository, and to a
// heading in it.
func TestDocumentedLinks(t *testing.T) {
	n := 0
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
			} else if heading != "" && !slices.Contains(headings(textOf(t, target)), heading) {
				t.Errorf("%s: %s has no heading #%s", file, target, heading)
			}
		}
	}
	t.Logf("%d links", n)
}

// headings are the anchors that GitHub makes of a document's headings.
func headings(text string) (anchors []string) {
	seen := make(map[string]int)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		a := strings.ToLower(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(m[1], ""))
		a = strings.ReplaceAll(a, " ", "-")
		seen[a]++
		if n := seen[a]; n > 1 {
			a += "-" + strconv.Itoa(n-1)
		}
		anchors = append(anchors, a)
	}
	return anchors
}
