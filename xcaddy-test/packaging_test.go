package xcaddytest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

func file(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDockerfile checks what can be checked without Docker: the image is built with
// the flags of the Makefile from files that exist and that .dockerignore does not
// exclude, and runs a copied binary without root.
func TestDockerfile(t *testing.T) {
	text := strings.ReplaceAll(file(t, "packaging/Dockerfile"), "\\\n", " ")
	ignored := strings.Fields(file(t, ".dockerignore"))
	stages, user, copied := map[string]bool{}, "", map[string]bool{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		switch words[0] {
		case "FROM":
			user = words[len(words)-1][strings.LastIndex(words[len(words)-1], ":")+1:]
			if i := slices.Index(words, "AS"); i > 0 {
				stages[words[i+1]] = true
			}
		case "COPY":
			from, args := "", words[1:]
			for strings.HasPrefix(args[0], "--") {
				from, args = from+strings.TrimPrefix(args[0], "--from="), args[1:]
			}
			for _, src := range args[:len(args)-1] {
				if from == "" {
					if _, err := os.Stat(filepath.Join("..", src)); err != nil || slices.Contains(ignored, strings.Split(src, "/")[0]) {
						t.Errorf("%s: %v, or left out by .dockerignore", line, err)
					}
				} else if !stages[strings.Split(from, "--")[0]] {
					t.Errorf("%s: no such stage in %v", line, stages)
				}
			}
			copied[args[len(args)-1]] = true
		case "USER":
			user = words[1]
		case "ENTRYPOINT":
			var command []string
			if err := json.Unmarshal([]byte(strings.Join(words[1:], " ")), &command); err != nil || !copied[command[0]] {
				t.Errorf("%s: %v, or not copied: %v", line, err, copied)
			}
		case "ARG", "WORKDIR", "RUN", "ENV", "VOLUME", "EXPOSE", "CMD":
		default:
			t.Errorf("%s: unknown instruction", line)
		}
	}
	if user == "" || strings.HasPrefix(user, "root") || strings.HasPrefix(user, "0") || len(stages) != 1 {
		t.Errorf("runs as %q, stages %v", user, stages)
	}
	flags := regexp.MustCompile(`(?m)^CADDY_FLAGS := (.*)$`).FindStringSubmatch(file(t, "Makefile"))[1]
	for _, of := range []string{"packaging/Dockerfile", ".ci/release", ".ci/build-release"} {
		for _, flag := range []string{"-trimpath", "-tags nobadger,nomysql,nopgx", "-s -w"} {
			if !strings.Contains(flags, flag) || !strings.Contains(file(t, of), flag) {
				t.Errorf("%s: %s not in the Makefile and in %s", flag, flags, of)
			}
		}
	}
}

// compose is the part of compose.yaml that the tests read.
type compose struct {
	Services map[string]struct {
		Image       string
		Build       struct{ Context, Dockerfile string }
		Command     any
		Environment map[string]string
		Volumes     []string
		Ports       []string
		DependsOn   []string `yaml:"depends_on"`
		ReadOnly    bool     `yaml:"read_only"`
		Tmpfs       []string
		CapDrop     []string `yaml:"cap_drop"`
		SecurityOpt []string `yaml:"security_opt"`
		Restart     string
	}
	Volumes map[string]any
}

// TestCompose checks that the files named by compose.yaml exist and that its
// Caddyfile is valid with its environment.
func TestCompose(t *testing.T) {
	var c compose
	dec := yaml.NewDecoder(strings.NewReader(file(t, "packaging/compose.yaml")))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	if len(c.Services) != 3 || c.Services["one"].Build != c.Services["two"].Build || c.Services["one"].Build.Context != ".." {
		t.Fatalf("services %+v", c.Services)
	}
	file(t, c.Services["one"].Build.Dockerfile) // it exists
	for name, s := range c.Services {
		for _, v := range s.Volumes {
			from := strings.Split(v, ":")[0]
			_, named := c.Volumes[from]
			if _, err := os.Stat(filepath.Join("../packaging", from)); err != nil && !named {
				t.Errorf("%s: volume %s: %v", name, v, err)
			}
		}
		for _, d := range s.DependsOn {
			if _, ok := c.Services[d]; !ok {
				t.Errorf("%s depends on %s, which does not exist", name, d)
			}
		}
	}
	cmd := harness.Command(t, t.TempDir(), "validate", "--config", "../packaging/Caddyfile")
	for name := range c.Services["one"].Environment {
		cmd.Env = append(cmd.Env, name+"=any")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSystemdDropIn checks that the systemd drop-in replaces the commands of Caddy's
// unit and passes the credential that docs/install.md reads.
func TestSystemdDropIn(t *testing.T) {
	text, doc := file(t, "packaging/diana.conf"), file(t, "docs/install.md")
	for _, key := range []string{"ExecStart", "ExecReload"} {
		all := regexp.MustCompile(`(?m)^`+key+`=(.*)$`).FindAllStringSubmatch(text, -1)
		if len(all) != 2 || all[0][1] != "" || !strings.HasPrefix(all[1][1], "/usr/local/bin/caddy ") {
			t.Errorf("%s: %q: want an empty value, then the other binary", key, all)
		}
	}
	name := regexp.MustCompile(`(?m)^LoadCredential=([\w-]+):/`).FindStringSubmatch(text)
	if name == nil || !strings.Contains(doc, "{file./run/credentials/caddy.service/"+name[1]+"}") {
		t.Errorf("docs/install.md does not read credential %q", name)
	}
	for _, m := range regexp.MustCompile(`install .*-m \d+ (\S+) (\S+)`).FindAllStringSubmatch(doc, -1) {
		if !strings.Contains(text, m[1]+" "+m[2]) {
			t.Errorf("%s is installed elsewhere in packaging/diana.conf", m[1])
		}
	}
}

// TestRepositoryFiles checks that the YAML of the repository's metadata parses and
// that dependabot covers every module.
func TestRepositoryFiles(t *testing.T) {
	for _, pattern := range []string{"../.github/*.yml", "../.github/*/*.yml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, f := range files {
			var v map[string]any
			if err := yaml.Unmarshal([]byte(file(t, strings.TrimPrefix(f, "../"))), &v); err != nil || len(v) == 0 {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
	for _, module := range append(modules(t), "./.ci/tools") {
		if want := `"` + strings.TrimPrefix(module+"/", ".")[:max(1, len(module)-1)] + `"`; !strings.Contains(file(t, ".github/dependabot.yml"), want) {
			t.Errorf("dependabot does not cover %s", want)
		}
	}
}

// TestModulesShareVersions checks that what imports Caddy requires the versions of this
// module's go.mod: of others, make test would compile much of Caddy twice.
func TestModulesShareVersions(t *testing.T) {
	require := regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+/\S+) (v\S+)`)
	versions := make(map[string]string)
	for _, module := range modules(t) {
		text := file(t, filepath.Join(module, "go.mod"))
		if !strings.Contains(text, "github.com/caddyserver/caddy/v2 ") {
			continue
		}
		for _, m := range require.FindAllStringSubmatch(text, -1) {
			if path, version := m[1], m[2]; module == "." {
				versions[path] = version
			} else if want := versions[path]; want != "" && version != want && !strings.HasPrefix(path, "github.com/dianalimiter/") {
				t.Errorf("%s requires %s %s: want %s", module, path, version, want)
			}
		}
	}
	if len(versions) < 50 {
		t.Fatalf("versions in the root's go.mod: %d, want more", len(versions))
	}
}

// modules returns the folders of the modules whose tests run, this one first.
func modules(t *testing.T) []string {
	out, err := harness.Program(t, "../.ci/modules").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// TestRelease checks that the release script accepts only a version that has notes
// in the changelog. It runs in a copy of the repository.
func TestRelease(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "clone")
	if out, err := harness.Program(t, "git", "clone", "-q", "..", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	changelog := filepath.Join(dir, "CHANGELOG.md")
	notes := "# Changelog\n\n## [9.9.9] - 2030-01-01\n\n- what is new\n\n## [9.9.8]\n\n- what was\n"
	if err := os.WriteFile(changelog, []byte(notes), 0o600); err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("../.ci/release")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(script)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, ".ci/release"), text, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	release := func(version string) (string, error) {
		cmd := harness.Program(t, ".ci/release", version)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PLATFORMS=linux/amd64")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, bad := range []string{"", "1.2.3", "v1", "v1.2.3", "v9.9"} {
		if out, err := release(bad); err == nil {
			t.Errorf("%q is released: %s", bad, out)
		}
	}
	if out, err := release("v9.9.9"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "dist/notes.md")); err != nil || string(bytes.TrimSpace(b)) != "- what is new" {
		t.Errorf("notes %q: %v", b, err)
	}
	check := harness.Program(t, "bash", "-ec", "cd dist && sha256sum -c checksums.txt && tar -xzf *.tar.gz && ./caddy version && test -f LICENSE")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil || !strings.Contains(string(out), harness.CaddyVersion+"+diana.9.9.9") {
		t.Errorf("%v: %s", err, out)
	}
}
