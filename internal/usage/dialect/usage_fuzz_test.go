package dialect_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/usage/dialect"
	"github.com/dianalimiter/diana/internal/usage/scan"
)

// FuzzUsage reads a body in pieces and whole: what it tells is the same, and never negative.
func FuzzUsage(f *testing.F) {
	files, err := filepath.Glob("../../../test/testdata/usage/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no cases", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, one := range strings.Split(string(text), "\n== ") {
			if at := strings.IndexAny(one, "{["); at >= 0 {
				f.Add([]byte(one[max(strings.Index(one, "data:"), 0):]), byte(7))
				f.Add([]byte(one[at:]), byte(3))
			}
		}
	}
	table, err := dialect.NewTable("auto")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, size byte) {
		read := func(size int) (dialect.Tokens, bool) {
			u := table.Read()
			s := scan.New("", table.Paths, u)
			for rest := body; len(rest) > 0; {
				n := min(size, len(rest))
				_, _ = s.Write(rest[:n])
				rest = rest[n:]
			}
			s.End()
			return u.Tokens(s.Streams(), func() int64 { return 1 })
		}
		whole, known := read(max(1, len(body)))
		if pieces, also := read(max(1, int(size))); pieces != whole || also != known {
			t.Errorf("in pieces %v, %v, whole %v, %v", pieces, also, whole, known)
		}
		if min(whole.Input, whole.Cached, whole.Written, whole.Output) < 0 {
			t.Errorf("negative: %v", whole)
		}
	})
}
