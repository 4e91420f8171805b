package xcaddytest

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const (
	canaryInEnv  = "canary-from-the-environment"
	canaryInFile = "canary-from-a-file"
	canaryPlain  = "canary-written-plain"
)

// TestPasswordsAreNotDisclosed checks that a password from the environment or a file
// is used and never appears in adapted JSON, logs, metrics, responses or saved
// files, even if it is wrong.
func TestPasswordsAreNotDisclosed(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte(canaryInFile), 0o600); err != nil {
		t.Fatal(err)
	}
	env := "REDIS_PASSWORD=" + canaryInEnv
	for name, passwords := range map[string][2]string{
		"right": {canaryInEnv, canaryInFile},
		"wrong": {"another", "another"},
	} {
		t.Run(name, func(t *testing.T) {
			byEnv := harness.StartRedis(t, "--requirepass", passwords[0])
			byFile := harness.StartRedis(t, "--requirepass", passwords[1])
			config := canaryConfig(byEnv, byFile, "{env.REDIS_PASSWORD}", "{file."+secret+"}")
			caddy := harness.StartCaddy(t, config, env)
			for range 3 {
				caddy.Get(t, "/env")
				caddy.Get(t, "/file")
			}
			up, _ := caddy.Metric(t, "caddy_rate_limit_store_up", `store="redis"`)
			if (up == 1) != (name == "right") {
				t.Errorf("with the %s password, store_up is %v", name, up)
			}
			if name == "wrong" {
				caddy.WaitLog(t, 5*time.Second, `"level":"error"`, "WRONGPASS")
			}
			wantUndisclosed(t, caddy, config, env)
		})
	}
}

func canaryConfig(byEnv, byFile *harness.Redis, envPassword, filePassword string) harness.Config {
	return harness.Config{
		Global: fmt.Sprintf("\tdebug\n\tmetrics\n\trate_limit {\n\t\tstore redis %s {\n\t\t\tpassword %s\n\t\t\ttimeout 10s\n\t\t}\n"+
			"\t\tstore redis %s {\n\t\t\tname second\n\t\t\tpassword %s\n\t\t\ttimeout 10s\n\t\t}\n\t}",
			byEnv.Addr, envPassword, byFile.Addr, filePassword),
		Site: "\tlog\n\trate_limit /env {\n\t\tzone env {\n\t\t\trule 2/1m\n\t\t}\n\t}\n" +
			"\trate_limit /file {\n\t\tzone file {\n\t\t\trule 2/1m\n\t\t\tstore second\n\t\t}\n\t}\n\trespond ok",
	}
}

// wantUndisclosed fails the test for each output that contains a password.
func wantUndisclosed(t *testing.T, caddy *harness.Caddy, config harness.Config, env string) {
	t.Helper()
	seen := map[string]string{}
	text := config.Caddyfile(strings.TrimPrefix(caddy.Admin, "http://"), caddy.Port)
	path := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"adapt", "validate"} {
		cmd := harness.Command(t, t.TempDir(), command, "--config", path)
		cmd.Env = append(cmd.Env, env)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		seen[command] = string(out)
	}
	for _, path := range []string{
		"/config/", "/metrics", "/debug/vars", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2",
		"/reverse_proxy/upstreams", "/rate_limit/zones", "/rate_limit/",
	} {
		seen[path] = harness.Do(t, http.MethodGet, caddy.Admin+path, "").Body
	}
	seen["/adapt"] = harness.Do(t, http.MethodPost, caddy.Admin+"/adapt", text, "Content-Type", "text/caddyfile").Body
	broken := withRoute(t, caddy.Running(t), `{"handle":[{"handler":"rate_limit","zones":[{"name":"bad","rules":[]}]}]}`)
	seen["a failed /load"] = caddy.Load(t, broken).Body
	seen["a successful /load"] = caddy.Load(t, caddy.Running(t)).Body
	for _, path := range []string{"/env", "/file"} {
		answer := caddy.Get(t, path)
		seen[path] = fmt.Sprint(answer.Header, answer.Body)
	}
	filesBelow(t, caddy.Dir, seen)
	seen["log"] = caddy.Log()
	for where, text := range seen {
		if text == "" && !strings.HasPrefix(where, "a successful") {
			t.Errorf("%s: no output to check", where)
		}
		for _, canary := range []string{canaryInEnv, canaryInFile} {
			if strings.Contains(text, canary) {
				t.Errorf("%s shows %s:\n%s", where, canary, text)
			}
		}
	}
}

// filesBelow adds the files that Caddy has saved below dir to seen.
func filesBelow(t *testing.T, dir string, seen map[string]string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if len(text) > 0 {
			seen[path] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPlainPasswordIsNotRepeated checks that the warning about a password written
// into the configuration does not repeat it.
func TestPlainPasswordIsNotRepeated(t *testing.T) {
	redis := harness.StartRedis(t, "--requirepass", "another")
	for name, store := range map[string]string{
		"option":  redis.Addr + " {\n\t\t\tpassword " + canaryPlain + "\n\t\t}",
		"address": "redis://default:" + canaryPlain + "@" + redis.Addr,
	} {
		t.Run(name, func(t *testing.T) {
			caddy := harness.StartCaddy(t, harness.Config{
				Global: "\trate_limit {\n\t\tstore redis " + store + "\n\t}",
				Site:   "\trate_limit {client_ip} 2/1m\n\trespond ok",
			})
			caddy.Get(t, "/")
			caddy.WaitLog(t, 5*time.Second, `"level":"warn"`, "password")
			caddy.WaitLog(t, 5*time.Second, `"level":"error"`, "WRONGPASS")
			broken := withRoute(t, caddy.Running(t), `{"handle":[{"handler":"rate_limit","zones":[{"name":"bad","rules":[]}]}]}`)
			for where, text := range map[string]string{
				"log": caddy.Log(), "/metrics": harness.Do(t, http.MethodGet, caddy.Admin+"/metrics", "").Body,
				"a failed /load": caddy.Load(t, broken).Body,
			} {
				if strings.Contains(text, canaryPlain) {
					t.Errorf("%s shows the password:\n%s", where, text)
				}
			}
		})
	}
}
