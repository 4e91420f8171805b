package xcaddytest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// documentedWrite is the block of commands in docs/rules.md that writes a document.
var documentedWrite = regexp.MustCompile("(?s)```sh\\n(caddy rate-limit validate .*?)```")

// TestDocumentedWrite runs the commands of docs/rules.md that check, read and write a
// document verbatim, except for the address of the admin endpoint and the ETag. The change
// is in force on all instances.
func TestDocumentedWrite(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	all := startMany(t, 3, harness.Config{Global: onRedisWith(redis, "rules redis diana:rules {\ninterval 1h\n}", "timeout 10s"), Site: limitedSite})
	doc, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	block := documentedWrite.FindSubmatch(doc)
	if block == nil {
		t.Fatal("docs/rules.md does not say how to write a document")
	}
	dir := t.TempDir()
	write := func(document string) {
		if err := os.WriteFile(filepath.Join(dir, "rules.json"), []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := strings.TrimPrefix(all[0].Admin, "http://")
	shell := strings.ReplaceAll(string(block[1]), "localhost:2019", address)
	shell = regexp.MustCompile(`(?m)^caddy (rate-limit \S+)`).ReplaceAllString(shell, harness.Binary()+" $1 --address "+address)
	shell = strings.ReplaceAll(shell, "curl ", "curl -sS ")
	lines := strings.SplitN(strings.TrimSpace(shell), "\n", 4)

	write(limitDocument("api", 80_001))
	if out, _ := runShell(t, dir, lines[0]); !strings.Contains(out, "valid, zones: 1") {
		t.Errorf("validate: %s", out)
	}
	if out, _ := runShell(t, dir, lines[1]); !strings.Contains(out, "valid, zones: 1") {
		t.Errorf("validate --strict: %s", out)
	}
	out, _ := runShell(t, dir, lines[2])
	tag := regexp.MustCompile(`(?i)(?m)^etag: "(\w+)"`).FindStringSubmatch(out)
	if tag == nil || !strings.Contains(out, `{"zones": {}}`) {
		t.Fatalf("no ETag in %s", out)
	}
	put := strings.ReplaceAll(lines[3], "<ETag>", tag[1])
	if out, _ := runShell(t, dir, put); !strings.Contains(out, `"valid": true`) {
		t.Errorf("put: %s", out)
	}
	everywhere(t, all, "api", 80_001, 10*time.Second)
	write(limitDocument("api", 80_002))
	if out, _ := runShell(t, dir, put); !strings.Contains(out, "another document was written meanwhile") {
		t.Errorf("a second put with the same ETag: %s", out)
	}

	// The command fails for an invalid document, with the reason and nothing else.
	write(`{"zones": {"api": {"rules": [{"limit": "1\u001b[2J", "window": "1s"}]}}}`)
	for _, args := range [][]string{nil, {"--json"}} {
		args = append([]string{"rate-limit", "validate", filepath.Join(dir, "rules.json"), "--address", address}, args...)
		out, err := harness.Command(t, dir, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "/zones/api/rules/0/limit: ") || strings.ContainsRune(string(out), '\x1b') {
			t.Errorf("%v: %s", err, out)
		}
	}

	// Zones that are unknown here are no error, unless it is asked to be strict.
	write(`{"zones": {"api": {}, "apii": {}}}`)
	for _, strict := range []bool{false, true} {
		cmd := harness.Command(t, dir, "rate-limit", "validate", filepath.Join(dir, "rules.json"), "--address", address, fmt.Sprint("--strict=", strict))
		if out, err := cmd.CombinedOutput(); (err != nil) != strict || !strings.Contains(string(out), "not checked, as zones unknown here: apii") {
			t.Errorf("strict %v: %v: %s", strict, err, out)
		}
	}

	// A page of another origin writes nothing.
	for _, method := range []string{http.MethodPut, http.MethodPost} {
		for _, headers := range [][]string{{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Host", "evil.example"}, {"Sec-Fetch-Mode", "no-cors"}} {
			headers = append(headers, "Content-Type", "application/json", "If-Match", "*")
			for _, path := range []string{"/rate_limit/rules", "/rate_limit/rules/validate"} {
				if got := hostile(t, method, all[0].Admin+path, headers); got.StatusCode != http.StatusForbidden && got.StatusCode != http.StatusBadRequest {
					t.Errorf("%s %s with %v: status %d", method, path, headers, got.StatusCode)
				}
			}
		}
	}
	if limit := limitOf(t, all[1], "api"); limit != 80_001 {
		t.Errorf("limit %d, want 80001", limit)
	}
	if ttl := redis.TTL(t.Context(), "diana:rules").Val(); ttl != -1 {
		t.Errorf("the document expires in %v", ttl)
	}
	redis.Expire(t.Context(), "diana:rules", time.Hour) // as every other key does
}
