package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

// TestMissingBraces checks that validate, and adapting a file, name the block whose } is missing, wherever Caddy notices
// it; and that files whose braces are paired say nothing of the kind.
func TestMissingBraces(t *testing.T) {
	const no = "{ without }: want the } that ends this block, at "
	for text, want := range map[string]string{
		":8080 {\n\trate_limit {\n\t\tzone a {\n\t\t\trule 10/s\n\t}\n\trespond ok\n}\n":                                              "3",
		":8080 {\n\trate_limit {\n\t\tzone a {\n\t\t\trule 10/s\n\t\t\trespond 429 {\n\t\t\t\tproblem\n\t\t}\n\t}\n\trespond ok\n}\n": "5",
		":8080 {\n  rate_limit {\n    zone a {\n      rule 10/s\n    zone b {\n      rule 1/s\n    }\n  }\n  respond ok\n}\n":         "3",
		":8080\n\nrate_limit {\n\tzone a {\n\t\trule 10/s\n}\nrespond ok\n":                                                           "4",
		"{\n\trate_limit {\n\t\tstore redis a:1 {\n\t\t\ttimeout 5ms\n\t}\n}\n:8080 {\n\trate_limit 10/s\n}\n":                        "3",
		":8080 {\n\trate_limit {\n\t\tzone a {\n\t\t\trule 10/s\n\t\t}\n\t}\n\trespond ok\n":                                          "1",
		":8080 {\n\trate_limit {\n\t\tzone a {\n\t\t\trule 10/s {\n\t\t\t\tburst 5\n\t\t}\n\t}\n}\n:8081 {\n\trespond \"} {\"\n}\n":   "4",
		":8080 {\n\trate_limit {\n\t\tzone a {\n\t\t\trules 10/s\n\t\t\t}\n}\n\trespond ok # {\n\t}\n":                                "",
		":8080 {\n\trate_limit {\n\t\tzone a {\n\t\t\trules 10/s\n\t\t}\n\t}\n\trespond <<X\n\t{ {\n\tX\n}\n":                         "",
		":8080 {\nrate_limit {\nzone a {\nrules 10/s\n}\n}\nheader A {$HOME}\n}\n":                                                    "",
		":8080 {\n\trate_limit {\n\t\tzone a {\n\t\t\trule 10/s\n\t\t\tin_flight adaptive { min 4 }\n\t\t}\n\t}\n}\n":                 "",
	} {
		file := filepath.Join(t.TempDir(), "Caddyfile")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := cli.Open(file, "", "", true)
		if err == nil {
			o.Close()
			t.Errorf("%s\nvalid", text)
			continue
		}
		if got := strings.Count(err.Error(), no); want == "" && got > 0 || want != "" && (got != 1 || !strings.Contains(err.Error(), no+file+":"+want)) {
			t.Errorf("%s\n%v\nwant line %q", text, err, want)
		}
	}
}
