package diana

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
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
	for _, pattern := range []string{"README*.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "examples/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
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
		steps[i].Host = orDefault(steps[i].Host, host)
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

// commands are those that stand in the documentation, each with the test that
// runs it or, after "make ", with the target that it is.
var commands = map[string]string{
	`make run\b.*`: "make run",
	`make (test|help|lint|fmt|bench|build|exact|exact-long|fuzz|mutants|chaos)\b.*`: "make $1",
	`xcaddy build \S+ --with \S+ --with \S+/examples/algorithm`:                     "xcaddy-test TestSeventhAlgorithm",
	`xcaddy build \S+ --with \S+`:                                                   "xcaddy-test TestModulesAreListed",
	`bin/caddy run --config examples/\S+`:                                           "xcaddy-test TestExamples",
	`benchmarks/run\b.*`:                                                            "make bench",
	`DIANA_BENCH=long benchmarks/run.*`:                                             "make bench",
	`(DIANA_SOAK=\S+ )?\.ci/chaos .*`:                                               "make chaos",
	`docker (build|run) .*`:                                                         "xcaddy-test TestDockerfile",
	`docker compose .*`:                                                             "xcaddy-test TestCompose",
	`export REDIS_PASSWORD=.*`:                                                      "xcaddy-test TestCompose",
	`(install|systemctl) .*`:                                                        "xcaddy-test TestSystemdDropIn",
	`caddy rate-limit \S+.*`:                                                        "xcaddy-test TestOperatingCommands",
	`curl localhost:2019/rate_limit/.*`:                                             "xcaddy-test TestOperatingCommands",
	`redis-cli -x SET diana:rules <rules.json && redis-cli PUBLISH diana:rules ''`: ". TestDocumentedPush",
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// TestDocumentedCommands looks up every command of the documentation in the
// table of those that are run, and that what runs them exists.
func TestDocumentedCommands(t *testing.T) {
	makefile, n := textOf(t, "Makefile"), 0
	for _, sn := range snippets(t) {
		switch sn.lang {
		case "sh", "bash", "shell", "console":
		case "":
			if !strings.Contains(textOf(t, sn.file), "<!-- acl -->\n```\n"+sn.text) {
				t.Errorf("%v: a block of no language", sn)
			}
			continue
		default:
			continue
		}
		for _, line := range shellLines(sn.text) {
			n++
			if err := coveredBy(t, makefile, line); err != nil {
				t.Errorf("%v: %v", sn, err)
			}
		}
	}
	t.Logf("%d commands", n)
}

// shellLines are a script's commands, without comments. One that is quoted over
// several lines is one.
func shellLines(text string) (list []string) {
	whole := ""
	for line := range strings.Lines(text) {
		whole += strings.TrimSpace(line) + " "
		if strings.Count(whole, "'")%2 == 1 {
			continue
		}
		command, _, _ := strings.Cut(whole, "  #")
		if command = strings.TrimSpace(command); command != "" && !strings.HasPrefix(command, "#") {
			list = append(list, command)
		}
		whole = ""
	}
	return list
}

func coveredBy(t *testing.T, makefile, line string) error {
	for pattern, by := range commands {
		re := regexp.MustCompile("^(?:" + pattern + ")$")
		if !re.MatchString(line) {
			continue
		}
		if target, ok := strings.CutPrefix(re.ReplaceAllString(line, by), "make "); ok {
			if !strings.Contains(makefile, "\n"+target+":") {
				return fmt.Errorf("%q: make has no target %s", line, target)
			}
			return nil
		}
		folder, test, _ := strings.Cut(by, " ")
		files, err := filepath.Glob(folder + "/*_test.go")
		if err != nil {
			return err
		}
		for _, f := range files {
			for _, m := range testFunc.FindAllStringSubmatch(textOf(t, f), -1) {
				if m[1] == test {
					return nil
				}
			}
		}
		return fmt.Errorf("%q: no test %s in %s", line, test, folder)
	}
	return fmt.Errorf("%q is run by no test: want it in the table", line)
}

// TestDocumentedPush runs the push of docs/rules.md as it stands there.
func TestDocumentedPush(t *testing.T) {
	redis := redistest.Start(t)
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	port := redis.Addr[strings.LastIndex(redis.Addr, ":")+1:]
	// A redis-cli that finds the test's Redis where others find theirs.
	wrapper := "#!/bin/sh\nexec " + cli + " -p " + port + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "redis-cli"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	document := `{"zones": {"z": {"rules": [{"limit": 3, "window": "1h"}]}}}`
	if err := os.WriteFile(filepath.Join(dir, "rules.json"), []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, config{
		app:  redisStore(redis.Addr, "timeout 10s") + "rules redis diana:rules",
		site: "rate_limit {\nzone z {\nkey all\nrule 1/1h\n}\n}",
	})
	s.want(req{}, 200, 429)
	found := false
	for _, sn := range snippets(t) {
		if sn.file != "docs/rules.md" || !strings.Contains(sn.text, "PUBLISH") {
			continue
		}
		found = true
		cmd := exec.Command("sh", "-ec", sn.text)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if !found {
		t.Fatal("docs/rules.md has no push")
	}
	until(t, "the pushed rule", func() bool { return s.send(req{}).status == 200 })
}

// TestChineseReadme holds both READMEs to have the same blocks, the same words in
// code, the same links, headings and figures. What one of them says, the other must.
func TestChineseReadme(t *testing.T) {
	english, chinese := textOf(t, "README.md"), textOf(t, "README.zh-CN.md")
	figure := regexp.MustCompile(`\d[\d.,]*(?: us| %|x)?`)
	for what, of := range map[string]func(text string) []string{
		"block": func(text string) []string { return regexp.MustCompile("(?s)```.*?```").FindAllString(text, -1) },
		"word":  func(text string) []string { return regexp.MustCompile("`[^`\n]+`").FindAllString(outside(text), -1) },
		"link": func(text string) []string {
			return regexp.MustCompile(`\]\((?:https|docs|[A-Z]+\b)[^)]*\)`).FindAllString(text, -1)
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
		t.Errorf("README.md has %d sections, README.zh-CN.md %d", n, m)
	}
	if n, m := strings.Count(english, "\n|"), strings.Count(chinese, "\n|"); n != m {
		t.Errorf("README.md has %d lines of tables, README.zh-CN.md %d", n, m)
	}
}

// outside is a text without its fenced blocks.
func outside(text string) string {
	return regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
}

// ofReadme says of a link that it leads to the other language.
func ofReadme(v string) bool { return strings.Contains(v, "](README") }

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
			if _, err := os.Stat(target); err != nil {
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
