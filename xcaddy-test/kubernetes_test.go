package xcaddytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// mount writes files as the kubelet does: each name is a link to ..data/<name>, and ..data a link
// to a folder, which is replaced by renaming.
func mount(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	folder, err := os.MkdirTemp(dir, "..2026_")
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	err = errors.Join(err, os.Symlink(filepath.Base(folder), filepath.Join(dir, "..data_tmp")),
		os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if err != nil {
		t.Fatal(err)
	}
}

// pod starts what a pod of examples/kubernetes runs, on free ports.
func pod(t *testing.T, secrets string, env []string) *harness.Caddy {
	t.Helper()
	port, internal, admin := harness.FreePort(t), harness.FreePort(t), harness.FreePort(t)
	text := strings.NewReplacer(
		":8080", fmt.Sprintf("http://127.0.0.1:%d", port), ":8081", fmt.Sprintf("http://127.0.0.1:%d", internal),
		"localhost:2019", fmt.Sprintf("127.0.0.1:%d", admin), "/run/secrets/redis", secrets, "shutdown_delay 5s", "shutdown_delay 50ms",
	).Replace(file(t, "examples/kubernetes/config/Caddyfile"))
	path := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	adapt := harness.Command(t, t.TempDir(), "adapt", "--config", path)
	adapt.Env = append(adapt.Env, env...)
	config, err := adapt.Output()
	if err != nil {
		t.Fatal(err)
	}
	c := harness.StartCaddyJSON(t, config, port, admin, env...)
	for path, part := range map[string]string{"/healthz": "", "/metrics": "caddy_rate_limit_store_up"} {
		if a := harness.Do(t, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", internal, path), ""); a.Status != 200 || !strings.Contains(a.Body, part) {
			t.Errorf("%s: %d, want 200 with %q", path, a.Status, part)
		}
	}
	return c
}

// TestKubernetesExample runs the Caddyfile of the pods twice with one Redis, and replaces the
// rules as a changed ConfigMap does.
func TestKubernetesExample(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t, "--requirepass", "canary")
	secrets, rules := t.TempDir(), t.TempDir()
	mount(t, secrets, map[string]string{"password": "canary", "key-secret": "secret"})
	mount(t, rules, map[string]string{"rules.json": file(t, "examples/kubernetes/config/rules.json")})
	env := []string{"REDIS=" + redis.Addr, "RULES=" + filepath.Join(rules, "rules.json"), "TRUSTED_PROXIES=127.0.0.0/8"}
	pods := []*harness.Caddy{pod(t, secrets, env), pod(t, secrets, env)}

	limit := func(c *harness.Caddy) string {
		return harness.Do(t, http.MethodGet, c.URL, "", "X-Forwarded-For", "203.0.113.9").Header.Get("RateLimit-Policy")
	}
	for _, c := range pods {
		// A pod that has just started on a busy machine may decide alone, with its share.
		harness.Until(t, harness.Patience, "the whole limit", func() bool { return limit(c) == `"clients";q=10;w=10` })
	}
	document, err := json.Marshal(map[string]any{"zones": map[string]any{"clients": map[string]any{"rules": []any{map[string]any{"limit": 3, "window": "1h"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	mount(t, rules, map[string]string{"rules.json": string(document)})
	for _, c := range pods {
		harness.Until(t, harness.Patience, "the changed rules are in force", func() bool { return limit(c) == `"clients";q=3;w=3600` })
	}
	harness.Until(t, harness.Patience, "both pods together admit three", func() bool {
		client, allowed := fmt.Sprintf("198.51.100.%d", harness.FreePort(t)%250), 0
		for i := range 6 {
			if harness.Do(t, http.MethodGet, pods[i%2].URL, "", "X-Forwarded-For", client).Status == 200 {
				allowed++
			}
		}
		return allowed == 3
	})
}
