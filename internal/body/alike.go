package body

import (
	"strings"
	"unicode/utf8"
)

// Alike reports whether what follows may take a name in a form, a query or a cookie for another: the one that is
// configured, or a part of it. PHP takes dots, spaces and a bracket that is not closed for underscores, cuts names at a
// NUL and ignores what follows a closing bracket; Rack leaves out brackets around a name; others take a[b] for a.b; and
// all of them replace a by a[] or a[0], and some a[0] by a[]. The letters must be the same.
func Alike(name, configured string) bool {
	name, _, _ = strings.Cut(name, "\x00")
	if name = strings.TrimLeftFunc(name, isFrame); name == "" || configured == "" || differs(name, strings.TrimLeftFunc(configured, isFrame)) {
		return false
	}
	list := listOf(configured)
	if flatSame(name, configured) || flatSame(name, list) || flatSame(name, unindexed(configured)) || malformed(name) && flat(base(name)) == flat(base(configured)) {
		return true
	}
	for i := 1; i < len(name); i++ {
		end := i // of what one program or another takes for the whole name
		switch c := name[i]; {
		case c == ']':
			end = i + 1
		case c != '[' && (c != '.' || i+1 == len(name) || !isDigit(name[i+1])):
			continue
		}
		if flatSame(name[:end], configured) || flatSame(name[:end], list) {
			return true
		}
	}
	return false
}

// malformed reports whether brackets of a name are not as they should be, which each program reads in its own way.
func malformed(name string) bool {
	open := false
	for i := 0; i < len(name); i++ {
		switch name[i] {
		case '[':
			if open {
				return true
			}
			open = true
		case ']':
			if !open || i+1 < len(name) && name[i+1] != '[' && name[i+1] != '.' {
				return true
			}
			open = false
		}
	}
	return open
}

// base returns what precedes the brackets and dots of a name.
func base(name string) string {
	name = strings.TrimLeftFunc(name, isFrame)
	if i := strings.IndexAny(name, "[]."); i >= 0 {
		return name[:i]
	}
	return name
}

// AlikeInAnyCase is like [Alike], for names whose letters may be upper or lower case.
func AlikeInAnyCase(name, configured string) bool {
	if name == "" || isLetter(name[0]) && differs(name, configured) { // soon, for most names
		return false
	}
	return strings.EqualFold(name, configured) || Alike(fold(name), fold(configured))
}

// fold returns a text in lower case, also of the letters that have none of their own, such as the long s.
func fold(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return strings.ToLower(strings.ToUpper(s))
		}
	}
	return strings.ToLower(s)
}

// listOf returns the name of the list of which a name is an element; other names as they are.
func listOf(name string) string {
	list, ok := strings.CutSuffix(name, "[]")
	if !ok || list == "" {
		return name
	}
	return list
}

// unindexed returns the name of the list of which a name is the element of a number: some take a value of that name
// for the first element. Other names as they are.
func unindexed(name string) string {
	at := strings.LastIndexByte(name, '[')
	if index, ok := strings.CutSuffix(name[at+1:], "]"); at < 1 || !ok || !isNumber(index) {
		return name
	}
	return name[:at]
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// flatSame reports whether two names have the same parts. The number of an element is any if one of them has none.
func flatSame(a, b string) bool {
	if flat(a) == flat(b) {
		return true
	}
	return (strings.Contains(a, "[]") || strings.Contains(b, "[]")) && flat(unnumbered(a)) == flat(unnumbered(b))
}

// flat returns the parts of a name with one underscore between them.
func flat(name string) string {
	name = strings.TrimRightFunc(strings.TrimLeftFunc(name, isFrame), isEnd)
	if !strings.ContainsAny(name, " .[]_") {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if strings.IndexByte(" .[]_", name[i]) < 0 {
			b.WriteByte(name[i])
		} else if i == 0 || strings.IndexByte(" .[]_", name[i-1]) < 0 {
			b.WriteByte('_')
		}
	}
	return b.String()
}

// unnumbered returns a name without the numbers in its brackets.
func unnumbered(name string) string {
	if !strings.Contains(name, "[") {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		b.WriteByte(name[i])
		if name[i] == '[' {
			end := i + 1
			for end < len(name) && isDigit(name[end]) {
				end++
			}
			if end < len(name) && name[end] == ']' {
				i = end - 1
			}
		}
	}
	return b.String()
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isFrame(r rune) bool { return r == '[' || r == ']' || isPadding(r) }

func isEnd(r rune) bool { return r == ']' || r == '.' || r == '_' || isPadding(r) }

// cutPart returns the first part of the name of a field in JSON, and the others: a.b, a[b] and [a][b] have two.
func cutPart(name string) (part, others string) {
	name = trimSeparators(name)
	end := 0
	for end < len(name) && !isSeparator(name[end]) {
		end++
	}
	return name[:end], trimSeparators(name[end:])
}

func trimSeparators(name string) string {
	for name != "" && isSeparator(name[0]) {
		name = name[1:]
	}
	return name
}

func isSeparator(c byte) bool { return c == '.' || c == '[' || c == ']' }

// spells reports whether a member's name has the first parts of a field's name, and returns the others.
func spells(member, field string) (others string, ok bool) {
	if member == "" || differs(member, field) { // soon, for most members
		return "", false
	}
	for others = field; ; {
		var part, want string
		if part, member = cutPart(member); part == "" {
			return others, len(others) < len(field)
		}
		want, others = cutPart(others)
		switch {
		case want == "" && isNumber(part): // an element of it
		case want == "" || !similar(part, want):
			return "", false
		}
	}
}
