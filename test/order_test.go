package test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// orderedArguments are what directives need to be adapted.
var orderedArguments = map[string]string{
	"map": "{host} {x} {\ndefault a\n}", "vars": "a b", "header": "A b", "request_body": "{\nmax_size 1MB\n}", "redir": "/a /b", "method": "GET", "rewrite": "* /x",
	"uri": "strip_prefix /x", "try_files": "/x /y", "basic_auth": "{\nanna $2a$04$/ZPGnsZ5JHu76HG6M2SF2uWYtizPUk9W44q4tKT36xNyVv7Zt2TqW\n}",
	"forward_auth": "localhost:9000 {\nuri /auth\n}", "request_header": "A b", "encode": "gzip", "handle": "{\nrespond x\n}", "handle_path": "/x {\nrespond x\n}",
	"route": "{\nrespond x\n}", "respond": "x", "reverse_proxy": "localhost:9000", "file_server": "", "rate_limit_quota": "/quota",
}

// TestDocumentedOrder compares the table of the order of directives with where Caddy puts them.
func TestDocumentedOrder(t *testing.T) {
	_, section, _ := strings.Cut(textOf(t, "docs/recipes.md"), "\n### The order of directives\n")
	section, _, _ = strings.Cut(section, "\n## ")
	n := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`"+`.*?) \| (before|after) \|`).FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			n++
			arguments, known := orderedArguments[name[1]]
			if !known {
				t.Errorf("%s is in the table, and not in this test", name[1])
				continue
			}
			if where := orderOf(t, name[1]+" "+arguments); where != row[2] {
				t.Errorf("%s runs %s rate_limit, and the table says %s", name[1], where, row[2])
			}
		}
	}
	if n != len(orderedArguments) {
		t.Errorf("%d directives in the table, want %d", n, len(orderedArguments))
	}
}

// orderOf returns whether a directive runs before rate_limit or after it.
func orderOf(t *testing.T, directive string) string {
	t.Helper()
	adapted, err := trace.Adapt(":80 {\nrate_limit {client_ip} 10/s\n" + directive + "\n}\n")
	if err != nil {
		t.Fatalf("%s: %v", directive, err)
	}
	var config struct {
		Apps struct {
			HTTP struct {
				Servers map[string]struct {
					Routes []struct{ Handle []struct{ Handler string } }
				}
			}
		}
	}
	if err := json.Unmarshal(adapted, &config); err != nil {
		t.Fatal(err)
	}
	routes := config.Apps.HTTP.Servers["srv0"].Routes
	if len(routes) == 0 || len(routes[0].Handle) == 0 {
		t.Fatalf("%s: no handler in %s", directive, adapted)
	}
	if routes[0].Handle[0].Handler == "rate_limit" {
		return "after"
	}
	return "before"
}
