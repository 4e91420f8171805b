package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// commands maps each command of the documentation, as a pattern, to the test that
// runs it or, after "make ", to its Makefile target.
var commands = map[string]string{
	`(PORT=\d+ ADMIN=\d+ )?make run\b.*`:        "make run",
	`go (run|test|tool pprof) .*`:               "test TestDocumentedGoCommands",
	`(\.ci/build-tools |bin/tools/)benchstat.*`: "make bench",
	`redis-server --port 6379 .*|redis-cli -p 6379 .*|PORT=\d+ ADMIN=\d+ bin/caddy start .*|bin/caddy start --config proxy.caddyfile`:                       "xcaddy-test TestFromCloneToThreeInstances",
	`bin/caddy rate-limit zones --fleet .*|curl -s localhost:2022/metrics.*|curl .* -H 'X-Forwarded-For.*|for admin in .*|for i in .* localhost:8080; done`: "xcaddy-test TestFromCloneToThreeInstances",

	`xcaddy build \S+ --with \S+`:                           "xcaddy-test TestModulesAreListed",
	`bin/caddy run --config examples/\S+`:                   "xcaddy-test TestExamples",
	`benchmarks/run\b.*`:                                    "make bench",
	`DIANA_BENCH=long benchmarks/run.*`:                     "make bench",
	`(DIANA_[A-Z]+=\S+ )*\.ci/chaos .*`:                     "make chaos",
	`(DIANA_SEED=\d+ )?\.ci/simulate \w+`:                   "make simulate",
	`\(cd test/exact && go run \./mutants -simulated \w+\)`: "make mutants",
	`docker (build|run) .*`:                                 "xcaddy-test TestDockerfile",
	`docker compose .*`:                                     "xcaddy-test TestCompose",
	`export REDIS_PASSWORD=.*`:                              "xcaddy-test TestCompose",
	`kubectl create secret .*|kubectl exec .* caddy rate-limit zones|kubectl apply .*`:           "xcaddy-test TestKubernetesExample",
	`(gh attestation|cosign|git commit|VERSION=\S+ PLATFORM=\S+ \.ci/reproduce|\.ci/release) .*`: "test TestWorkflows",
	`(install|systemctl) .*`:                              "xcaddy-test TestSystemdDropIn",
	`caddy rate-limit \S+.*`:                              "xcaddy-test TestOperatingCommands",
	`curl -(i|X PUT) localhost:2019/rate_limit/rules\b.*`: "xcaddy-test TestDocumentedWrite",
	`curl -X PATCH localhost:2019/id/.*`:                  "xcaddy-test TestPatchByID",
	`curl localhost:2019/rate_limit/.*`:                   "xcaddy-test TestOperatingCommands",

	`make (test|flaky|help|lint|fmt|bench|build|example|exact|exact-long|instructions|fuzz|mutants|chaos|simulate|toolchains|versions|reproduce|site)\b.*`: "make $1",
	`xcaddy build \S+ --with \S+ --with \S+/examples/(algorithm|source|store)`:                                                                             "xcaddy-test TestThirdPartyModules",

	`redis-cli -x SET diana:rules <rules.json && redis-cli PUBLISH diana:rules ''`: "test TestDocumentedPush",
}

// TestDocumentedCommands checks that every command of the documentation is in the
// table of commands and that the test or target named there exists.
func TestDocumentedCommands(t *testing.T) {
	patterns, makefile, n := make(map[string]*regexp.Regexp), textOf(t, "Makefile"), 0
	for pattern := range commands {
		patterns[pattern] = regexp.MustCompile("^(?:" + pattern + ")$")
	}
	for _, sn := range snippets(t) {
		switch sn.lang {
		case "sh", "bash", "shell", "console":
		case "":
			if !strings.Contains(textOf(t, sn.file), " -->\n```\n"+sn.text) {
				t.Errorf("%v: the block has no language", sn)
			}
			continue
		default:
			continue
		}
		for _, line := range shellLines(sn.text) {
			n++
			if err := coveredBy(t, patterns, makefile, line); err != nil {
				t.Errorf("%v: %v", sn, err)
			}
		}
	}
	t.Logf("%d commands", n)
}

// shellLines returns a script's commands without comments. A command with a
// multi-line quoted string is one command.
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

func coveredBy(t *testing.T, patterns map[string]*regexp.Regexp, makefile, line string) error {
	for pattern, by := range commands {
		re := patterns[pattern]
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
		for _, f := range glob(t, folder+"/*_test.go") {
			if strings.Contains(textOf(t, f), "\nfunc "+test+"(") {
				return nil
			}
		}
		return fmt.Errorf("%q: no test %s in %s", line, test, folder)
	}
	return fmt.Errorf("%q is run by no test: want it in the table", line)
}

var (
	goCommand  = regexp.MustCompile("(?m)\\bgo (run|test) ([^`\\n#]+)")
	goFolder   = regexp.MustCompile(`(?:^| )(\.(?:/[\w/.-]*)?)`)
	goSelected = regexp.MustCompile(`-(run|bench) '?([\w^$]+)`)
)

// TestDocumentedGoCommands checks that the folders, tests and benchmarks named by
// go commands in the documentation exist.
func TestDocumentedGoCommands(t *testing.T) {
	n := 0
	for _, file := range documents(t) {
		for _, m := range goCommand.FindAllStringSubmatch(textOf(t, file), -1) {
			n++
			for _, folder := range goFolder.FindAllStringSubmatch(m[2], -1) {
				if err := hasSelected(t, folder[1], m[2]); err != nil {
					t.Errorf("%s: go %s %s: %v", file, m[1], m[2], err)
				}
			}
		}
	}
	if n < 8 {
		t.Errorf("only %d commands", n)
	}
	t.Logf("%d go commands", n)
}

// hasSelected checks that a folder exists in the root or in one of the modules and
// that it has the tests or benchmarks that a command selects.
func hasSelected(t *testing.T, folder, command string) error {
	t.Helper()
	within := strings.TrimSuffix(strings.TrimSuffix(folder, "..."), "/")
	for _, module := range []string{".", "benchmarks", "test/exact", "test/chaos", "xcaddy-test"} {
		text := ""
		for _, f := range glob(t, filepath.Join(module, within, "*.go")) {
			text += textOf(t, f)
		}
		found := text != ""
		for _, s := range goSelected.FindAllStringSubmatch(command, -1) {
			kind := map[string]string{"run": "Test", "bench": "Benchmark"}[s[1]]
			if s[2] != "^$" {
				name := regexp.MustCompile(`(?m)^func ` + kind + `\w*` + regexp.QuoteMeta(strings.TrimPrefix(s[2], kind)))
				found = found && name.MatchString(text)
			}
		}
		if found {
			return nil
		}
	}
	return fmt.Errorf("%s has no such test or benchmark in any module", folder)
}

// TestDocumentedPush runs the push command of docs/rules.md verbatim.
func TestDocumentedPush(t *testing.T) {
	redis := redistest.Start(t)
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	port := redis.Addr[strings.LastIndex(redis.Addr, ":")+1:]
	// This redis-cli connects to the test's Redis by default.
	wrapper := "#!/bin/sh\nexec " + cli + " -p " + port + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "redis-cli"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	document := `{"zones": {"z": {"rules": [{"limit": 3, "window": "1h"}]}}}`
	if err := os.WriteFile(filepath.Join(dir, "rules.json"), []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, setup{
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
		cmd := command(t, "sh", "-ec", sn.text)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if !found {
		t.Fatal("docs/rules.md has no push command")
	}
	until(t, "the pushed rule", func() bool { return s.send(req{}).status == 200 })
}
