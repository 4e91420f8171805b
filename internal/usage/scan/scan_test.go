package scan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/usage/scan"
)

// found are the numbers that a body has at a path, in their order.
type found map[int][]scan.Amount

// numbers notes the numbers of a body, and how many texts it has that are not the last of a stream.
type numbers struct {
	found found
	texts int
}

func (n *numbers) Found(path int, v scan.Value) {
	if v.Kind == scan.Number {
		n.found[path] = append(n.found[path], v.Amount)
	}
}

func (n *numbers) EndText(last bool) {
	if !last {
		n.texts++
	}
}

// types are the Content-Types of the formats.
var types = map[scan.Format]string{scan.JSON: "application/json", scan.NDJSON: "application/jsonl", scan.SSE: "text/event-stream"}

// scanned scans a body in pieces, which begin where cut returns true.
func scanned(t testing.TB, format scan.Format, body []byte, cut func() bool, paths ...string) (*numbers, *scan.Scanner) {
	t.Helper()
	p, err := scan.NewPaths(paths...)
	if err != nil {
		t.Fatal(err)
	}
	got := &numbers{found: make(found)}
	s := scan.New(types[format], p, got)
	begin := 0
	for i := range body {
		if i > begin && cut() {
			_, _ = s.Write(body[begin:i])
			begin = i
		}
	}
	_, _ = s.Write(body[begin:])
	return got, s
}

func whole() bool    { return false }
func bytewise() bool { return true }

func TestNumbersOfBodies(t *testing.T) {
	const usage = `{"id":"x","usage":{"total_tokens":17,"note":"\"total_tokens\":99"},"choices":[{"n":1},{"n":2.5}]}`
	for _, c := range []struct {
		name, body string
		format     scan.Format
		paths      []string
		want       string
	}{
		{"a member", usage, scan.JSON, []string{"usage.total_tokens"}, "map[0:[{17 0}]]"},
		{"an index", usage, scan.JSON, []string{"choices.1.n"}, "map[0:[{2 500000}]]"},
		{"text in a string", usage, scan.JSON, []string{"total_tokens"}, "map[]"},
		{"the last counts, each is told", `{"a":1,"a":"x","a":null,"a":3}`, scan.JSON, []string{"a"}, "map[0:[{1 0} {3 0}]]"},
		{"a path that leads on", `{"a":{"b":1},"a":2}`, scan.JSON, []string{"a", "a.b"}, "map[0:[{2 0}] 1:[{1 0}]]"},
		{"an index that is a name", `{"a":{"0":1}}`, scan.JSON, []string{"a.0"}, "map[0:[{1 0}]]"},
		{"a dot in a name", `{"a.b":{"c\\d":4}}`, scan.JSON, []string{`a\.b.c\\d`}, "map[0:[{4 0}]]"},
		{"escaped names", `{"\u0075s\u0061ge":5,"\ud83d\ude00":6,"a\/b":7}`, scan.JSON, []string{"usage", "😀", "a/b"}, "map[0:[{5 0}] 1:[{6 0}] 2:[{7 0}]]"},
		{"an escaped name as long as any", `{"` + strings.Repeat(`\u0061`, 256) + `":1}`, scan.JSON, []string{strings.Repeat("a", 256)}, "map[0:[{1 0}]]"},
		{"halves of surrogate pairs", `{"\ud83d\ud83d\ude00":1,"\ud83d":2,"\ude00\ud83d":3,"\ud83da":4,"\ud83d\ude00":5}`, scan.JSON, []string{"😀", "a"}, "map[0:[{5 0}]]"},
		{"a name with a wrong escape", `{"a":1,"\x":2,"a":3}`, scan.JSON, []string{"a"}, "map[0:[{1 0}]]"},
		{"a name with a short escape", `{"a":1,"\u006":2,"a":3}`, scan.JSON, []string{"a"}, "map[0:[{1 0}]]"},
		{"an array of documents", `[{"a":1},{"a":2},[{"a":9}],3]`, scan.JSON, []string{"a", "0.a"}, "map[0:[{1 0} {2 0}] 1:[{9 0}]]"},
		{
			"numbers", `{"a":-4,"b":1e3,"c":0.0000001,"d":4503599627370497,"e":1e400,"f":12345678901234567890123456789012345,"g":2E-1}`, scan.JSON,
			[]string{"a", "b", "c", "d", "e", "f", "g"},
			"map[0:[{0 0}] 1:[{1000 0}] 2:[{0 1}] 3:[{4503599627370496 0}] 4:[{4503599627370496 0}] 6:[{0 200000}]]",
		},
		{"no numbers", `{"a":"1","b":true,"c":[1],"d":{"e":1}}`, scan.JSON, []string{"a", "b", "c", "d"}, "map[]"},
		{"cut in a number", `{"a":12,"b":12`, scan.JSON, []string{"a", "b"}, "map[0:[{12 0}]]"},
		{"a fault", `{"a":1,"b":2]"c":3}`, scan.JSON, []string{"a", "b", "c"}, "map[0:[{1 0}] 1:[{2 0}]]"},
		{"a number with a fault", `{"a":01,"b":2}`, scan.JSON, []string{"a", "b"}, "map[1:[{2 0}]]"},
		{"words that JSON does not have", `{"a":NaN,"b":-Infinity,"c":None,"x":True,"a":+5,"d":{"x":[NaN,undefined],"b":3}}`, scan.JSON, []string{"a", "b", "c", "d.b"}, "map[3:[{3 0}]]"},
		{"commas after the last", `{"x":[1,],"a":[{"b":1,},],"b":2,}`, scan.JSON, []string{"a.0.b", "b"}, "map[0:[{1 0}] 1:[{2 0}]]"},
		{"commas after the last document", `[{"a":1},{"a":2},]`, scan.JSON, []string{"a"}, "map[0:[{1 0} {2 0}]]"},
		{"byte order marks between texts", " \xef\xbb\xbf\xef\xbb\xbf{\"a\":1}\xef\xbb\xbf{\"a\":2}", scan.JSON, []string{"a"}, "map[0:[{1 0} {2 0}]]"},
		{"byte order marks in lines", "{\"a\":1}\n\xef\xbb\xbf{\"a\":2}\n", scan.NDJSON, []string{"a"}, "map[0:[{1 0} {2 0}]]"},
		{"byte order marks in events", "data: \xef\xbb\xbf{\"a\":1}\n\n\xef\xbb\xbfdata: {\"a\":2}\n\n", scan.SSE, []string{"a"}, "map[0:[{1 0} {2 0}]]"},
		{"a second text", `{"a":1}{"a":2}`, scan.JSON, []string{"a"}, "map[0:[{1 0} {2 0}]]"},
		{"texts with record separators", "\x1e{\"a\":1}\n\x1e{\"a\":\n2}\n", scan.JSON, []string{"a"}, "map[0:[{1 0} {2 0}]]"},
		{"lines", "{\"a\":1}\n{\"a\":\n{\"a\":3}\r\n\n{\"a\":4}", scan.NDJSON, []string{"a"}, "map[0:[{1 0} {3 0} {4 0}]]"},
		{"events", ": hello\n\ndata: {\"a\":1}\n\nevent: x\ndata:{\"a\":\ndata:  2}\nid: 7\n\ndata\ndata: [DONE]\n\n", scan.SSE, []string{"a"}, "map[0:[{1 0} {2 0}]]"},
		{"events, CR", "data: {\"a\":1}\r\rdata: {\"a\":2}\r\r", scan.SSE, []string{"a"}, "map[0:[{1 0} {2 0}]]"},
		{"events, CRLF and a byte order mark", "\xef\xbb\xbfdata: {\"a\":1}\r\n\r\ndata: {\"a\":2}\r\n", scan.SSE, []string{"a"}, "map[0:[{1 0} {2 0}]]"},
		{"an event of two lines is one text", "data: {\"a\":1}\ndata: {\"a\":2}\n\n", scan.SSE, []string{"a"}, "map[0:[{1 0}]]"},
		{"a fault in an event", "data: {\"a\":1]\n\ndata: {\"a\":2}\n\n", scan.SSE, []string{"a"}, "map[0:[{1 0} {2 0}]]"},
		{"other fields", "datax: {\"a\":1}\n\nretry: 1\nxdata: {\"a\":1}\n\n", scan.SSE, []string{"a"}, "map[]"},
		{"every member of an array, but for one", usage, scan.JSON, []string{"choices.[].n", "choices.1.n"}, "map[0:[{1 0}] 1:[{2 500000}]]"},
		{"no format", "=" + usage, scan.Unknown, []string{"usage.total_tokens"}, "map[]"},
	} {
		for _, cut := range []func() bool{whole, bytewise} {
			got, _ := scanned(t, c.format, []byte(c.body), cut, c.paths...)
			if fmt.Sprint(got.found) != fmt.Sprint(c.want) {
				t.Errorf("%s: %v, want %s", c.name, got.found, c.want)
			}
		}
	}
}

// TestEventsOfOtherStreams counts what streams have in place of events, as far as it has ended.
func TestEventsOfOtherStreams(t *testing.T) {
	for body, want := range map[string]struct {
		format     scan.Format
		cut, whole int
	}{
		"{\"a\":1}\r\n\n \n{\"a\":":            {scan.NDJSON, 1, 2},
		"{}\n5\nx\n\"a\"\n":                    {scan.NDJSON, 4, 4},
		"":                                     {scan.NDJSON, 0, 0},
		"[{\"a\":[1,2]},\r\n[3],4,{}, {\"a\":": {scan.JSON, 4, 4},
		"[ ]":                                  {scan.JSON, 0, 0},
		"{\"a\":[1,2],\"b\":3}":                {scan.JSON, 1, 1},
		"{\"a\":1}\n{\"a\":2}\n{\"a\":":        {scan.JSON, 2, 2},
	} {
		for _, cut := range []func() bool{whole, bytewise} {
			got, s := scanned(t, want.format, []byte(body), cut, "a")
			if got.texts != want.cut {
				t.Errorf("%q, cut: %d events, want %d", body, got.texts, want.cut)
			}
			if s.End(); got.texts != want.whole {
				t.Errorf("%q: %d events, want %d", body, got.texts, want.whole)
			}
		}
	}
}

func TestPathsWithFaults(t *testing.T) {
	for _, path := range []string{"", "a.", ".a", "a..b", strings.Repeat("a.", 40) + "a", strings.Repeat("a", 257), "a\xff", "\ufffd"} {
		if _, err := scan.NewPaths(path); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%q: error %v", path, err)
		}
	}
}

// TestBeginnings recognizes formats whatever the Content-Type says.
func TestBeginnings(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	for body, want := range map[string]scan.Format{
		`{"a":1}`: scan.JSON, bom + ` [{"a":1}]`: scan.JSON, "\r\n {\"a\":1}": scan.JSON, "\x1e{\"a\":1}": scan.JSON,
		"data: {\"a\":1}\n\n": scan.SSE, bom + "data:{\"a\":1}\n\n": scan.SSE, "\n\n: x\n\ndata: {\"a\":1}\n\n": scan.SSE, "event: x\ndata: {\"a\":1}\n\n": scan.SSE,
		"id: 1\ndata: {\"a\":1}\n\n": scan.SSE, "retry: 1\ndata: {\"a\":1}\n\n": scan.SSE,
		"dat": scan.Unknown, "datax": scan.Unknown, "<html>": scan.Unknown, "\x00\x00\x01{\"a\":1}": scan.Unknown, bom + bom + "x": scan.Unknown, "": scan.Unknown, bom[:2] + "{": scan.Unknown,
	} {
		for _, contentType := range []string{"", "text/plain", "text/event-stream;charset-utf-8", "application/octet-stream"} {
			for _, size := range []int{1, 2, 100} {
				p, err := scan.NewPaths("a")
				if err != nil {
					t.Fatal(err)
				}
				got := &numbers{found: make(found)}
				s := scan.New(contentType, p, got)
				for rest := []byte(body); len(rest) > 0; {
					n := min(size, len(rest))
					_, _ = s.Write(rest[:n])
					rest = rest[n:]
				}
				s.End()
				if s.Format() != want || len(got.found[0]) != len(got.found) || want != scan.Unknown && len(got.found) != 1 {
					t.Errorf("%q, %s: format %v and numbers %v, want %v", body, contentType, s.Format(), got.found, want)
				}
			}
		}
	}
}

func TestFormats(t *testing.T) {
	for contentType, want := range map[string]scan.Format{
		"application/json": scan.JSON, "Application/JSON; charset=utf-8": scan.JSON, "application/problem+json": scan.JSON,
		"text/event-stream": scan.SSE, "text/event-stream;charset=UTF-8": scan.SSE, "application/x-jsonlines": scan.NDJSON,
		"application/x-ndjson": scan.NDJSON, "application/jsonl": scan.NDJSON,
		"": scan.Unknown, "text/html": scan.Unknown, "application/jsonx": scan.Unknown, ";": scan.Unknown,
	} {
		if got := scan.FormatOf(contentType); got != want {
			t.Errorf("%q: %v, want %v", contentType, got, want)
		}
	}
}

// reference returns what json.Decoder finds before a fault, by a stack.
func reference(body []byte, paths ...string) found {
	got := make(found)
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	top := bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("["))
	type container struct {
		array bool
		index int
		name  string
		named bool
	}
	var stack []container
	for {
		token, err := d.Token()
		if err != nil {
			return got
		}
		closes := token == json.Delim('}') || token == json.Delim(']')
		if closes {
			stack = stack[:len(stack)-1]
		}
		if n := len(stack); n > 0 && !closes {
			at := &stack[n-1]
			if !at.array && !at.named {
				at.name, at.named = token.(string), true
				continue
			}
			at.index++
		}
		if number, ok := token.(json.Number); ok && d.InputOffset() < int64(len(body)) { // not cut off
			var names []string
			for i, c := range stack {
				switch {
				case i == 0 && top:
				case c.array:
					names = append(names, strconv.Itoa(c.index-1))
				default:
					names = append(names, c.name)
				}
			}
			for i, p := range paths {
				if a, ok := scan.ParseAmount([]byte(number)); ok && strings.Join(names, ".") == p {
					got[i] = append(got[i], a)
				}
			}
		}
		if token == json.Delim('{') || token == json.Delim('[') {
			stack = append(stack, container{array: token == json.Delim('[')})
		} else if n := len(stack); n > 0 {
			stack[n-1].named = false
		}
		if len(stack) == 0 {
			return got
		}
	}
}

// random writes a random JSON value.
func random(r *rand.Rand, b *bytes.Buffer, depth int) {
	space := func() { b.WriteString([]string{"", "", "", " ", "\n", "\t\r"}[r.IntN(6)]) }
	space()
	kind := r.IntN(9)
	if depth == 0 {
		kind = r.IntN(7)
	}
	switch kind {
	case 0, 1, 2:
		b.WriteString([]string{"0", "1", "-7", "12.5", "1e2", "3.1E-3", "99999999999999999999", strings.Repeat("1", 40)}[r.IntN(8)])
	case 3:
		b.WriteString([]string{"true", "false", "null"}[r.IntN(3)])
	case 4, 5, 6:
		text, _ := json.Marshal([]string{"", "a", `"a":1`, `\`, "{[", "]}", "é\u2028\x00"}[r.IntN(7)])
		b.Write(text)
	case 7:
		b.WriteByte('[')
		for i := range r.IntN(4) {
			if i > 0 {
				b.WriteByte(',')
			}
			random(r, b, depth-1)
		}
		b.WriteByte(']')
	case 8:
		b.WriteByte('{')
		for i := range r.IntN(4) {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			b.WriteString([]string{`"a"`, `"b"`, `"0"`, `"\u0061"`, `"1"`, `"c"`, `"\ud800"`}[r.IntN(7)])
			space()
			b.WriteByte(':')
			random(r, b, depth-1)
		}
		b.WriteByte('}')
	}
	space()
}

var somePaths = []string{"a", "a.b", "b.a", "0", "a.0", "a.0.b", "1.a", "a.b.a.b"}

// TestRandomTexts compares random texts, whole and cut anywhere, with what encoding/json reads.
func TestRandomTexts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	all := 0
	for range 60_000 {
		var b bytes.Buffer
		random(r, &b, 5)
		body := b.Bytes()
		if r.IntN(2) == 0 {
			body = body[:r.IntN(len(body)+1)]
		}
		want := reference(body, somePaths...)
		cut := r.IntN(10)
		got, _ := scanned(t, scan.JSON, body, func() bool { return r.IntN(10) < cut }, somePaths...)
		if fmt.Sprint(got.found) != fmt.Sprint(want) {
			t.Fatalf("%q: %v, encoding/json %v", body, got.found, want)
		}
		all += len(got.found)
	}
	if all < 1000 {
		t.Errorf("only %d numbers", all)
	}
}

// FuzzTexts compares valid texts with what encoding/json reads, and reads all others to their end,
// in pieces and as lines and events.
func FuzzTexts(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1,"0":[1,2]}}`), byte(3))
	f.Add([]byte("data: {\"a\":1}\r\n\r\n"), byte(1))
	f.Fuzz(func(t *testing.T, body []byte, every byte) {
		n := 0
		cut := func() bool { n++; return every > 0 && n%int(every) == 0 }
		for _, format := range []scan.Format{scan.JSON, scan.NDJSON, scan.SSE} {
			got, _ := scanned(t, format, body, cut, somePaths...)
			all, _ := scanned(t, format, body, whole, somePaths...)
			if fmt.Sprint(got) != fmt.Sprint(all) {
				t.Fatalf("in pieces %v, whole %v", got, all)
			}
			if format == scan.JSON && json.Valid(body) {
				if want := reference(body, somePaths...); fmt.Sprint(got.found) != fmt.Sprint(want) {
					t.Fatalf("%v, encoding/json %v", got.found, want)
				}
			}
		}
	})
}

// TestAmounts parses texts that a fuzzer found, and those beside the bounds. The amounts are those of
// an implementation that counted digits.
func TestAmounts(t *testing.T) {
	most := scan.Amount{Units: scan.MaxAmount}
	for text, want := range map[string]scan.Amount{
		"0": {}, "-0": {}, "-1.5e3": {}, "0e400": {}, "0e-0": {}, "0.0E00000": {}, "0.0000000000000000": {},
		"1": {1, 0}, "100E0": {100, 0}, "77E7": {770_000_000, 0}, "1e+5": {100_000, 0}, "1.00E00000": {1, 0},
		"0.000001": {0, 1}, "0.0000010000000000000000001": {0, 2}, "0.00000000000000000001": {0, 1}, "0.99999999": {1, 0}, "1E-1": {0, 100_000},
		"0.80000000000000000000": {0, 800_000}, "0.001000000010001000000000000001": {0, 1001}, "177000001010010.0071197": {177_000_001_010_010, 7120},
		"7.000000001000700000100000000001": {7, 1}, "2000000000000.0010000": {2_000_000_000_000, 1000},
		"2e-7": {0, 1}, "1e-0007": {0, 1}, "1e-400": {0, 1}, "1e-99999999999999999999": {0, 1}, "100000000000000000000000000e-70": {0, 1},
		"1234567890123456789012345678e-13": {123_456_789_012_345, 678_902}, "1234567890123456789012345678e-50": {0, 1},
		"9999999999999999999999999999e-13": {1_000_000_000_000_000, 0}, "0.000000000000000000000000001e34": {10_000_000, 0},
		"4503599627370495.999999": {scan.MaxAmount - 1, 999_999}, "4503599627370495.9999999": most, "4503599627370496.5": most, "4503599627370497": most,
		"18446744073709551616": most, "20000000000000000000E70": most, "1e400": most, "1e99999999999999999999": most, strings.Repeat("1", 32): most,
	} {
		if got, ok := scan.ParseAmount([]byte(text)); !ok || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "-", ".5", "1.", "1e", "00", "01", "-01", "+1", "1 ", " 1", "1e5 ", "1/2", "0x1", "1_0", "1e1_0", "1p5", "null", `"1"`, "[0]", "0.000\xff0", "Inf",
		"1e99999999999999999999x", strings.Repeat("1", 33),
	} {
		if got, ok := scan.ParseAmount([]byte(text)); ok {
			t.Errorf("%q: %v, want no amount", text, got)
		}
	}
}

// FuzzAmount compares amounts with those of math/big, whose exponents have no bounds there.
func FuzzAmount(f *testing.F) {
	for _, text := range []string{"0", "-1", "1.5", "1e6", "0.0000001", "4503599627370495.9999999", "00", "1.", "1e", "9e-9", "1e5 ", "1e9999", "1234567890123456789012345678e-50"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := scan.ParseAmount([]byte(text))
		var n json.Number
		valid := len(text) <= 32 && text != "" && !strings.ContainsAny(text, " \t\r\n\"") && text != "null" && json.Unmarshal([]byte(text), &n) == nil
		if ok != valid {
			t.Fatalf("%q: %v, want %v", text, ok, valid)
		}
		exponent := text[strings.IndexAny(text+"e", "eE"):]
		if !ok || len(exponent) > 5 {
			return
		}
		value, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("%q is no number", text)
		}
		if value.Sign() < 0 {
			value.SetInt64(0)
		}
		micros := new(big.Rat).Mul(value, big.NewRat(1_000_000, 1))
		whole, part := new(big.Int).QuoRem(micros.Num(), micros.Denom(), new(big.Int))
		if part.Sign() > 0 {
			whole.Add(whole, big.NewInt(1))
		}
		most := new(big.Int).Mul(big.NewInt(scan.MaxAmount), big.NewInt(1_000_000))
		if whole.Cmp(most) > 0 {
			whole = most
		}
		if want := fmt.Sprintf("%d%06d", got.Units, got.Micros); strings.TrimLeft(want, "0") != strings.TrimLeft(whole.String(), "0") {
			t.Errorf("%q: %v, want %v", text, got, whole)
		}
	})
}

// nothing ignores what is found.
type nothing struct{}

func (nothing) Found(int, scan.Value) {}
func (nothing) EndText(bool)          {}

// lastNumber is the number that was found last.
type lastNumber int64

func (l *lastNumber) Found(_ int, v scan.Value) { *l = lastNumber(v.Amount.Units) }
func (*lastNumber) EndText(bool)                {}

// TestMemoryIsBounded scans texts of any depth and size without allocating.
func TestMemoryIsBounded(t *testing.T) {
	p, err := scan.NewPaths("a.b", "a.0.0.0.x")
	if err != nil {
		t.Fatal(err)
	}
	for name, piece := range map[string]string{"depth": `{"a":[[[`, "names": `{"aaaaaaaaaaaa\u00e9`, "objects": `{"a":`, "numbers": `{"a":{"b":1111111111`, "events": "data: x\nevent: aaaaaaa"} {
		for _, format := range []scan.Format{scan.JSON, scan.SSE} {
			s := scan.New(types[format], p, nothing{})
			body := strings.NewReader(strings.Repeat(piece, 1000))
			_, _ = s.Write([]byte(piece))
			if n := testing.AllocsPerRun(3, func() {
				_, _ = body.Seek(0, io.SeekStart)
				var buf [512]byte
				for {
					n, err := body.Read(buf[:])
					_, _ = s.Write(buf[:n])
					if errors.Is(err, io.EOF) {
						break
					}
				}
			}); n > 1 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	}
}

// TestManyEscapes scans a long string of escapes that comes in one piece, which takes as long as any
// other string; a search of the whole rest for each of them would take minutes.
func TestManyEscapes(t *testing.T) {
	body := []byte(`{"a":"` + strings.Repeat(`\n`, 1<<20) + `\\\"","n":7}`)
	for _, cut := range []func() bool{func() bool { return false }, func() bool { return rand.IntN(1000) == 0 }} {
		if got, _ := scanned(t, scan.JSON, body, cut, "n"); len(got.found[0]) != 1 {
			t.Errorf("found %v, want one number", got.found)
		}
	}
}
