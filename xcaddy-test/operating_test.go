package xcaddytest

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestOperatingCommands runs every command of docs/operating.md and docs/admin-api.md verbatim, except for
// the address of the admin endpoint.
func TestOperatingCommands(t *testing.T) {
	var doc []byte
	for _, name := range []string{"operating", "admin-api"} {
		page, err := os.ReadFile("../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		doc = append(doc, page...)
	}
	caddy := harness.StartCaddy(t, harness.Config{Site: `	rate_limit {
		zone api {
			match path /api/*
			key {header.X-Account}
			rule 2/1h
		}
		zone login {
			match path /login
			rule 5/1m
		}
	}
	respond ok`})
	for range 3 {
		harness.Do(t, http.MethodGet, caddy.URL+"/api/x", "", "X-Account", "customer-7")
	}
	blocks := regexp.MustCompile("(?s)```sh\\n(.*?)```").FindAllSubmatch(doc, -1)
	if len(blocks) == 0 {
		t.Fatal("no commands")
	}
	address := strings.TrimPrefix(caddy.Admin, "http://")
	reset := false
	for _, block := range blocks {
		shell := strings.ReplaceAll(string(block[1]), "localhost:2019", address)
		shell = regexp.MustCompile(`(?m)^caddy (rate-limit \S+)`).ReplaceAllString(shell, harness.Binary()+" $1 --address "+address)
		shell = strings.ReplaceAll(shell, "curl ", "curl -sf ")
		printed, _ := runShell(t, ".", shell)
		if len(strings.TrimSpace(printed)) == 0 {
			t.Errorf("%s prints nothing", shell)
		}
		if strings.Contains(shell, "rate-limit reset") {
			reset = true // the limit is available again
			got := harness.Do(t, http.MethodGet, caddy.URL+"/api/x", "", "X-Account", "customer-7")
			if got.Status != http.StatusOK {
				t.Errorf("after the reset: status %d", got.Status)
			}
		}
	}
	if !reset {
		t.Error("no reset among the commands")
	}
}
