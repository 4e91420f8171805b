package loglimit

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape returns a text with those characters beyond ASCII escaped as in Go that are not printable,
// such as U+009B, which terminals obey, or U+202E, which reverses a line. Encoders of JSON escape those
// below.
func Escape(s string) string {
	for i := range len(s) {
		if s[i] >= 0x7f {
			return string(escape([]byte(s)))
		}
	}
	return s
}

// EscapeJSON is Escape for the text of JSON, in which it means the same afterwards.
func EscapeJSON(text []byte) []byte {
	if bytes.IndexFunc(text, func(r rune) bool { return r >= 0x7f }) < 0 {
		return text
	}
	return escape(text)
}

func escape(text []byte) []byte {
	to := make([]byte, 0, len(text)+16)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r < 0x7f || strconv.IsPrint(r) || r == utf8.RuneError:
			to = append(to, text[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			to = fmt.Appendf(to, `\u%04x\u%04x`, high, low)
		default:
			to = fmt.Appendf(to, `\u%04x`, r)
		}
		text = text[size:]
	}
	return to
}
