package body

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// naive are parsers of forms that nest by brackets, as simple as can be: each returns the value at a path.
var naive = map[string]func(pairs [][2]string, path string) string{
	// https://github.com/php/php-src/blob/master/main/php_variables.c, php_register_variable_ex
	"PHP": func(pairs [][2]string, path string) string {
		return nest(pairs, path, func(name string) []string {
			name, _, _ = strings.Cut(name, "\x00")
			name = strings.TrimLeft(name, " ")
			underscores := strings.NewReplacer(".", "_", " ", "_", "[", "_")
			base, rest, nested := strings.Cut(name, "[")
			if !nested || base == "" || !strings.Contains(rest, "]") {
				return []string{underscores.Replace(name)}
			}
			parts := []string{underscores.Replace(base)}
			for {
				part, after, closed := strings.Cut(rest, "]")
				if !closed {
					return parts
				}
				parts = append(parts, strings.TrimLeft(part, " "))
				if !strings.HasPrefix(after, "[") {
					return parts
				}
				rest = after[1:]
			}
		})
	},
	// https://github.com/rack/rack/blob/main/lib/rack/query_parser.rb, whose older versions trim brackets
	"Rack": func(pairs [][2]string, path string) string {
		head := regexp.MustCompile(`^[\[\]]*([^\[\]]+)\]*`)
		return nest(pairs, path, func(name string) (parts []string) {
			for name != "" {
				m := head.FindStringSubmatch(name)
				switch {
				case strings.HasPrefix(name, "[]"):
					parts, name = append(parts, ""), name[2:]
				case m == nil:
					return parts
				default:
					parts, name = append(parts, m[1]), name[len(m[0]):]
				}
			}
			return parts
		})
	},
	// https://github.com/ljharb/qs with allowDots
	"qs": func(pairs [][2]string, path string) string {
		dots, child := regexp.MustCompile(`\.([^.\[]+)`), regexp.MustCompile(`\[[^\[\]]*\]`)
		return nest(pairs, path, func(name string) []string {
			name = dots.ReplaceAllString(name, "[$1]")
			at := child.FindStringIndex(name)
			if at == nil {
				return []string{name}
			}
			parts := []string{name[:at[0]]}
			for _, part := range child.FindAllString(name, -1) {
				parts = append(parts, part[1:len(part)-1])
			}
			return parts
		})
	},
}

// nest returns the value at a path, "/" before each part, of pairs whose names are split; a list that is asked for
// has the path of its first element. The last value of a path counts.
func nest(pairs [][2]string, path string, split func(name string) []string) string {
	values, next := make(map[string]string), make(map[string]int)
	for _, pair := range pairs {
		at := ""
		for _, part := range split(pair[0]) {
			if part == "" && at != "" {
				part = fmt.Sprint(next[at])
				next[at]++
			}
			at += "/" + part
		}
		for known := range values { // a list replaces a value, and a value a list
			if strings.HasPrefix(known, at+"/") || strings.HasPrefix(at, known+"/") {
				delete(values, known)
			}
		}
		values[at] = pair[1]
	}
	return values[path]
}

// TestAlikeForms builds forms of spellings of a few names: whatever a field counts, none of the parsers has another
// value of it.
func TestAlikeForms(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	words := []string{"user", "email", "a", "0", "1", "", "user", "email", "x"}
	marks := []string{"[", "]", "][", "[]", ".", "_", " ", "\x00", "]]", "[["}
	counted := 0
	for range 60_000 {
		var pairs [][2]string
		var form []string
		for i := range 1 + random.IntN(3) {
			var name strings.Builder
			switch random.IntN(4) {
			case 0:
				name.WriteString([]string{"user[email]", "a", "a[]", "user", "a[0]", "a[0][x]"}[random.IntN(6)])
			case 1:
				name.WriteString([]string{"user[email]", "a", "a[0][x]"}[random.IntN(3)] + marks[random.IntN(len(marks))] + words[random.IntN(len(words))])
			default:
				for range 1 + random.IntN(4) {
					name.WriteString(words[random.IntN(len(words))] + marks[random.IntN(len(marks))])
				}
			}
			value := fmt.Sprint("v", i)
			pairs = append(pairs, [2]string{name.String(), value})
			form = append(form, url.QueryEscape(name.String())+"="+value)
		}
		text := strings.Join(form, "&")
		r := request(formType, text)
		ReadFields(httptest.NewRecorder(), r, Max, false)
		for name, path := range map[string]string{"user[email]": "/user/email", "a": "/a", "a[0]": "/a/0", "a[]": "/a/0", "a[0][x]": "/a/0/x"} {
			v := Field(r, name)
			if v == "" {
				continue
			}
			counted++
			for program, parse := range naive {
				if other := parse(pairs, path); other != "" && other != v {
					t.Fatalf("%q: %s is %q, and %q in %s", text, name, v, other, program)
				}
			}
		}
	}
	if counted < 3_000 {
		t.Errorf("%d fields were counted: want more", counted)
	}
}
