package option

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// values are the values of one option of each kind.
type values struct {
	text, secret, checked string
	whole                 int
	duration              caddy.Duration
	flag                  bool
	many                  []string
}

func (v *values) set() *Set {
	return &Set{
		One: map[string]Parse{
			"text":     Text(&v.text, "a text"),
			"secret":   Secret(&v.secret),
			"whole":    Whole(&v.whole, 1, 9),
			"duration": Duration(&v.duration),
			"flag":     Flag(&v.flag),
			"checked":  Checked(&v.checked, "a name", func(string) error { return nil }),
		},
		Many: map[string]Parse{"many": func(d *caddyfile.Dispenser) error {
			v.many = append(v.many, d.RemainingArgs()...)
			return nil
		}},
	}
}

func read(v *values, lines string) error {
	d := caddyfile.NewTestDispenser("here {\n" + lines + "\n}")
	d.Next()
	return v.set().Block(d)
}

// TestBlock parses one option of each kind.
func TestBlock(t *testing.T) {
	var v values
	err := read(&v, "text a\nsecret b\nchecked c\nwhole 9\nduration 1d\nflag\nmany a b\nmany c")
	if err != nil {
		t.Fatal(err)
	}
	if v.text != "a" || v.secret != "b" || v.checked != "c" || v.whole != 9 ||
		v.duration != 24*3600*1e9 || !v.flag || strings.Join(v.many, "") != "abc" {
		t.Errorf("read %+v", v)
	}
}

// TestBlockErrors parses invalid options: the errors name the option and show no
// secret.
func TestBlockErrors(t *testing.T) {
	for _, c := range []struct{ lines, want string }{
		{"flag\ntext", "text: want a text, at Testfile:3"},
		{`text ""`, "text: want a text"},
		{"text a b", `text: unexpected "b": want nothing more here, at Testfile:2`},
		{"flag {\nx\n}", "flag: unexpected block: want none here, at Testfile:2"},
		{"flag\nmany a\nflag", "flag is given twice, first at Testfile:2: want it once, at Testfile:4"},
		{"whole 0", `whole "0": want a whole number from 1 to 9`},
		{"whole 10", "from 1 to 9"},
		{"whole +5", "from 1 to 9"},
		{"whole 5.0", "from 1 to 9"},
		{"whole 99999999999999999999", "from 1 to 9"},
		{"duration 0s", `duration "0s": want a duration above zero`},
		{"duration 10", "want a duration above zero"},
		{"secret a hidden", "secret: want one value"},
		{"other", `unknown option "other": want checked, duration, flag, many, secret, text or whole, at Testfile:2`},
	} {
		err := read(new(values), c.lines)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.lines, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v shows a secret", c.lines, err)
		}
	}
}

// TestErrorsComeTogether checks that a block is read on after an error, that equal errors are shown
// once, and that there is an end.
func TestErrorsComeTogether(t *testing.T) {
	err := read(new(values), "whole 0\nflga\nflag\nflag\nsecret a hidden")
	want := "4 errors:\n\twhole \"0\": want a whole number from 1 to 9, at Testfile:2\n\tunknown option \"flga\": did you mean flag, at Testfile:3\n" +
		"\tflag is given twice, first at Testfile:4: want it once, at Testfile:5\n\tsecret: want one value, in quotes if it has spaces, at Testfile:6"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	one := errors.New("x")
	if err := Join(nil, one, Join(one, nil, one)); err.Error() != "x" || !errors.Is(err, one) {
		t.Errorf("three times the same: %v", err)
	}
	var many []error
	for i := range 22 {
		many = append(many, fmt.Errorf("%d", i))
	}
	if text := Join(many...).Error(); !strings.HasPrefix(text, "22 errors:\n\t0\n") || !strings.HasSuffix(text, "\t19\n\tand 2 more") {
		t.Errorf("22 errors: %s", text)
	}
}

// TestNearest checks which of several names a word was meant to be.
func TestNearest(t *testing.T) {
	names := []string{"token_bucket", "sliding_log", "sliding_window", "gcra", "rule", "key", "key_missing"}
	for word, want := range map[string]string{
		"tokenbucket": "token_bucket", "Token-Bucket": "token_bucket", "token": "token_bucket", "gcar": "gcra", "rules": "rule", "kye": "key",
		"sliding": "", "limit": "rule", "": "", "keymising": "key_missing", strings.Repeat("x", 1<<20): "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("%.20q: %q, want %q", word, got, want)
		}
	}
}

// TestNone checks what is said of a name that does not exist.
func TestNone(t *testing.T) {
	var many []string
	for i := range 30 {
		many = append(many, "zone"+strconv.Itoa(100+i))
	}
	for _, c := range []struct {
		word  string
		names []string
		want  string
	}{
		{"apu", []string{"login", "api"}, "there is none of this name: did you mean api; there are api and login"},
		{"x", []string{"login", "api", "api"}, "there is none of this name; there are api and login"},
		{"x", nil, "there is none of this name, and no other"},
		{"x", many, ", zone119 and 10 more"},
	} {
		if got := None(c.word, c.names); !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.word, got, c.want)
		}
	}
}
