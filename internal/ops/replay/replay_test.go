package replay

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	caddyLine  = `{"level":"info","ts":1700000000.25,"logger":"http.log.access.log0","msg":"handled request","request":{"remote_ip":"192.0.2.9","remote_port":"1","client_ip":"192.0.2.1","proto":"HTTP/2.0","method":"POST","host":"example.com:8443","uri":"/a?b=c","headers":{"X-Account":["7"],"Authorization":["REDACTED"]},"tls":{"version":772}},"user_id":"bob","duration":0.25,"status":401}`
	commonLine = `192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] "GET /a%20b?c=\x22d HTTP/1.1" 404 12`
)

// TestLines checks what is read of lines in each format.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		text string
		kind kind
		want string
	}{
		{caddyLine, access, "1700000000000000 1700000000250000 401 POST /a?b=c example.com:8443 192.0.2.9 192.0.2.1 bob"},
		{strings.Replace(caddyLine, "1700000000.25", `"2023-11-14T22:13:20.250Z"`, 1), access, "1700000000000000 1700000000250000 401 POST /a?b=c example.com:8443 192.0.2.9 192.0.2.1 bob"},
		{strings.Replace(strings.Replace(caddyLine, "1700000000.25", "1700000000250", 1), ":0.25", `:"250ms"`, 1), access, "1700000000000000 1700000000250000 401 POST /a?b=c example.com:8443 192.0.2.9 192.0.2.1 bob"},
		{strings.Replace(caddyLine, "1700000000.25", "1700000000250000000", 1), access, "1700000000000000 1700000000250000 401 POST /a?b=c example.com:8443 192.0.2.9 192.0.2.1 bob"},
		{strings.Replace(caddyLine, ":0.25", ":250", 1), access, "1700000000000000 1700000000250000 401 POST /a?b=c example.com:8443 192.0.2.9 192.0.2.1 bob"},
		{strings.Replace(caddyLine, ":0.25", ":250000000", 1), access, "1700000000000000 1700000000250000 401 POST /a?b=c example.com:8443 192.0.2.9 192.0.2.1 bob"},
		{strings.Replace(caddyLine, ":0.25", ":0", 1), access, "1700000000250000 1700000000250000 401 POST /a?b=c example.com:8443 192.0.2.9 192.0.2.1 bob"},
		{strings.Replace(strings.Replace(caddyLine, "1700000000.25", `"14/Nov/2023:22:13:20 +0000"`, 1), ":0.25", ":0", 1), access, "1700000000000000 1700000000000000 401 POST /a?b=c example.com:8443 192.0.2.9 192.0.2.1 bob"},
		{commonLine, access, "1700000000000000 1700000000000000 404 GET /a%20b?c=\"d  192.0.2.1 192.0.2.1 "},
		{commonLine + ` "-" "curl/8.0"`, access, "1700000000000000 1700000000000000 404 GET /a%20b?c=\"d  192.0.2.1 192.0.2.1 "},
		{strings.Replace(commonLine, "- -", "- alice", 1), access, "1700000000000000 1700000000000000 404 GET /a%20b?c=\"d  192.0.2.1 192.0.2.1 alice"},
		{strings.Replace(commonLine, "- -", "- x [01/Jan/2099:00:00:00 +0000] y", 1), access, "1700000000000000 1700000000000000 404 GET /a%20b?c=\"d  192.0.2.1 192.0.2.1 x [01/Jan/2099:00:00:00 +0000] y"},
		{`192.0.2.1 - - ] "GET / HTTP/1.1" 200 1`, unread, ""},
		{`{"level":"info","ts":1,"logger":"tls","msg":"certificate obtained"}`, other, ""},
		{strings.Replace(caddyLine, "handled request", "some error", 1), other, ""}, // http.log.error has a request too
		{caddyLine[:200], unread, ""},
		{"what is this", unread, ""},
		{`192.0.2.1 - - [then] "GET / HTTP/1.1" 200 1`, unread, ""},
		{`192.0.2.1 - - [14/Nov/2023:22:13:20 +0000] "\x16\x03\x01" 400 1`, unread, ""},
	} {
		var l Line
		if k := l.parse(c.text); k != c.kind {
			t.Errorf("%s: %v, want %v", c.text, k, c.kind)
		} else if got := fmt.Sprintln(l.Begin, l.End, l.Status, l.Method, l.URI, l.Host, l.RemoteIP, l.ClientIP, l.User); k == access && strings.TrimSuffix(got, "\n") != c.want {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
}

// TestLacks checks which fields lines lack.
func TestLacks(t *testing.T) {
	var whole, common, combined, filtered Line
	whole.parse(caddyLine)
	common.parse(commonLine)
	combined.parse(commonLine + ` "-" "curl/8.0"`)
	filtered.parse(`{"ts":1.5,"msg":"handled request","request":{"proto":"HTTP/2.0","method":"GET","host":"a","uri":"/"},"user_id":"","duration":0.25,"status":200}`)
	for placeholder, want := range map[string]string{
		"http.request.header.x-account": "[false true true true]", "http.request.header.Authorization": "[true true true true]", "http.request.header.User-Agent": "[false true false true]",
		"http.request.header.Nothing": "[false true true true]", "http.request.cookie.id": "[false true true true]", "http.request.host": "[false true true false]",
		"http.request.body.model": "[true true true true]", "http.vars.client_ip": "[false false false true]", "http.request.remote.host": "[false false false true]", "http.request.remote.port": "[false true true true]", "http.request.scheme": "[false true true false]",
		"http.request.tls.version": "[false true true false]", "http.request.tls.client.subject": "[false true true false]", "http.request.local.port": "[true true true true]", "http.vars.trusted_proxy": "[true true true true]",
		"http.request.uri.path": "[]", "http.auth.user.id": "[]", "http.vars.x": "[true true true true]",
	} {
		var got []bool
		if field := fieldOf(placeholder); field != "" {
			for _, l := range []*Line{&whole, &common, &combined, &filtered} {
				got = append(got, l.lacks(field, ""))
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: lacking %v, want %s", placeholder, got, want)
		}
	}
	if common.lacks(fieldHost, "example.com") {
		t.Error("the host is given, and lacks")
	}
}

// TestFieldsIn checks what is found in the text of a configuration.
func TestFieldsIn(t *testing.T) {
	got := fieldsIn([]byte(`[{"header": {"x-a": ["1"]}, "host": ["example.com"]}, {"expression": "header({'X-B': '*'}) && {http.request.cookie.c} == ''"}, {"vars": {"{plan}": ["gold"]}, "path": ["/x"], "not": [{"remote_ip": {"ranges": ["10.0.0.0/8"]}}]}]`))
	if want := []string{"header Cookie", "header X-A", "header X-B", "host", fieldRemote, fieldSet}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// line returns a line of Caddy for a request of a client.
func line(client string, begin, lasts int64) string {
	return fmt.Sprintf(`{"ts":%d.%06d,"msg":"handled request","request":{"remote_ip":%q,"client_ip":%q,"method":"GET","host":"h","uri":"/"},"duration":%d.%06d,"status":200}`,
		(begin+lasts)/1e6, (begin+lasts)%1e6, client, client, lasts/1e6, lasts%1e6)
}

// TestFiles checks that files of all kinds are merged by when their requests began, that a line
// that is cut off is no error, and what is counted.
func TestFiles(t *testing.T) {
	const begun = 1_700_000_000_000_000
	dir, texts := t.TempDir(), make([]bytes.Buffer, 3)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range int64(3000) {
		fmt.Fprintln(&texts[r.IntN(3)], line(fmt.Sprint("192.0.2.", i%9), begun+i*1000-r.Int64N(1000), 1000))
	}
	fmt.Fprintln(&texts[0], line("192.0.2.200", begun, 5_000_000)) // it lasted long
	fmt.Fprintln(&texts[0], line("192.0.2.201", begun+3600e6, 0))
	fmt.Fprintln(&texts[0], line("192.0.2.202", begun, 0)) // the clock was set back
	fmt.Fprintln(&texts[1], "nonsense")
	fmt.Fprintln(&texts[1], `{"msg": "other"}`)
	fmt.Fprintln(&texts[1], strings.Repeat("long ", longest/4))
	texts[1].WriteString(line("192.0.2.203", begun+1, 0)[:90])
	var zipped, packed bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(texts[1].Bytes())
	_ = z.Close()
	p, _ := zstd.NewWriter(&packed)
	_, _ = p.Write(texts[2].Bytes())
	_ = p.Close()
	var logs Logs
	for name, text := range map[string][]byte{"a.log": texts[0].Bytes(), "b.log.gz": zipped.Bytes(), "c.zst": packed.Bytes()} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		logs.Paths = append(logs.Paths, path)
	}
	last, disorder := int64(0), 0
	logs.Each = func(l *Line) error {
		if l.Begin < last {
			disorder++
		}
		last = max(last, l.Begin)
		return nil
	}
	read, err := logs.Read()
	if err != nil {
		t.Fatal(err)
	}
	if read.Lines != 3003 || read.Unread != 3 || read.Other != 1 || read.Late != 1 || disorder != 1 || len(read.First) != 3 || read.Cut != nil {
		t.Errorf("%+v, %d in disorder", read, disorder)
	}
	for name, text := range map[string][]byte{"cut.log.gz": zipped.Bytes(), "cut.zst": packed.Bytes()} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text[:len(text)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		logs.Paths = []string{path}
		if read, err := logs.Read(); err != nil || !slices.Equal(read.Cut, logs.Paths) {
			t.Errorf("%s: %+v, %v, want it told as cut", name, read, err)
		}
	}
	logs.Paths = []string{"-", "-"}
	if _, err := logs.Read(); err == nil || !strings.Contains(err.Error(), "- is given twice") {
		t.Errorf("stdin twice: %v", err)
	}
}

// TestRotatedFiles checks that of many files, one after another in time and in any order, only those
// are read that are due. One that is rotated meanwhile is read all the same.
func TestRotatedFiles(t *testing.T) {
	const begun, files, lines = 1_700_000_000_000_000, 20, 5 * batch
	dir := t.TempDir()
	var logs Logs
	for i := range int64(files) {
		text := bytes.NewBufferString("nonsense\n")
		for n := range int64(lines) {
			fmt.Fprintln(text, line("192.0.2.1", begun+i*10e6+n*1000, 0))
		}
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		logs.Paths = append(logs.Paths, path)
	}
	rand.Shuffle(files, func(i, j int) { logs.Paths[i], logs.Paths[j] = logs.Paths[j], logs.Paths[i] })
	before, most, last, disorder := runtime.NumGoroutine(), 0, int64(0), 0
	count := func() { most = max(most, runtime.NumGoroutine()-before) } // each file that is read has one
	logs.Stop = func() bool { count(); return false }
	logs.Each = func(l *Line) error {
		count()
		if last == 0 { // the latest is rotated before it is due
			active := filepath.Join(dir, fmt.Sprint(files-1))
			if err := errors.Join(os.Rename(active, active+".1"), os.WriteFile(active, []byte(line("192.0.2.1", begun+files*10e6, 0)), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if l.Begin < last {
			disorder++
		}
		last = l.Begin
		return nil
	}
	read, err := logs.Read()
	if err != nil || read.Lines != files*lines || read.Unread != files || read.Late != 0 || disorder != 0 {
		t.Errorf("%+v, %d in disorder: %v", read, disorder, err)
	}
	if most > 2 {
		t.Errorf("%d files were read at once, want at most 2", most)
	}
}

// TestClients checks the percentiles and the least limits against a slow and plain calculation.
func TestClients(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	c, err := NewClients([]string{"{client_ip}"})
	if err != nil {
		t.Fatal(err)
	}
	const begun = 1_700_000_000_000_000
	at, by := int64(begun), make(map[string][]int64)
	for range 4000 {
		at += r.Int64N([]int64{1000, 100_000, 5_000_000}[r.IntN(3)])
		client := fmt.Sprintf("192.0.2.%d", int(float64(200)*r.Float64()*r.Float64()))
		by[client] = append(by[client], at)
		var l Line
		if l.parse(line(client, at, 0)) != access {
			t.Fatal(line(client, at, 0))
		}
		by[client][len(by[client])-1] = l.Begin
		if err := c.Add(&l); err != nil {
			t.Fatal(err)
		}
	}
	most := make([][]int64, len(windows)+len(rates))
	for _, times := range by {
		for i, w := range windows {
			// the parts of a window that are not before the oldest one, which counts whole
			width, peak := w.Microseconds()/buckets, int64(0)
			for n, at := range times {
				used := int64(0)
				for _, before := range times[:n+1] {
					if at/width-before/width <= buckets {
						used++
					}
				}
				peak = max(peak, used)
			}
			most[i] = append(most[i], peak)
		}
		for i, rate := range rates {
			level, peak, before := int64(0), int64(0), int64(0) // in millionths of a request
			for _, at := range times {
				level = max(0, level-(at-before)*rate) + 1_000_000
				before = at
				peak = max(peak, (level+999_999)/1_000_000)
			}
			most[len(windows)+i] = append(most[len(windows)+i], peak)
		}
	}
	for _, deny := range []float64{0, 0.001, 0.01, 0.1, 0.5, 1} {
		m := c.Measured(deny)
		least := func(list []int64) int64 {
			for limit := int64(1); ; limit++ {
				denied := 0
				for _, n := range list {
					if n > limit {
						denied++
					}
				}
				if float64(denied) <= deny*float64(len(list))+1e-9 {
					return limit
				}
			}
		}
		for i := range windows {
			list := slices.Sorted(slices.Values(most[i]))
			rank := func(p int) uint32 { return uint32(list[max(0, (len(list)*p+999)/1000-1)]) }
			want := Window{names[i], rank(500), rank(950), rank(990), rank(999), rank(1000), m.Windows[i].Key, fmt.Sprintf("rule %d/%s sliding_window", least(list), names[i])}
			if m.Windows[i] != want || int64(len(by[want.Key])) < int64(want.Max) {
				t.Errorf("deny %v: %+v, want %+v", deny, m.Windows[i], want)
			}
		}
		for i, rate := range rates {
			if want := fmt.Sprintf("rule %d/s gcra burst %d", rate, least(most[len(windows)+i])); m.Meters[i] != want {
				t.Errorf("deny %v: %s, want %s", deny, m.Meters[i], want)
			}
		}
	}
	if m := c.Measured(0); m.Keys != len(by) {
		t.Errorf("%d keys, want %d", m.Keys, len(by))
	}
}

// TestFurtherKeysShare measures more keys than are told apart: the others are counted as one.
func TestFurtherKeysShare(t *testing.T) {
	c, err := NewClients([]string{"{client_ip}"})
	if err != nil {
		t.Fatal(err)
	}
	c.max = 3
	for i := range 60 {
		var l Line
		l.parse(line(fmt.Sprintf("192.0.2.%d", i%6), 1_700_000_000_000_000, 0))
		if err := c.Add(&l); err != nil {
			t.Fatal(err)
		}
	}
	m := c.Measured(0.25)
	if w := m.Windows[0]; m.Keys != 4 || m.Rest != 30 || w.P50 != 10 || w.Max != 30 || w.Key != "(further keys)" || w.Rule != "rule 10/1s sliding_window" {
		t.Errorf("%+v", m)
	}
}

// FuzzLine checks that no line panics, whatever it has.
func FuzzLine(f *testing.F) {
	for _, s := range []string{caddyLine, commonLine, commonLine + ` "-" "a\"b"`, `{"ts":"","msg":"handled request","request":[]}`, `"`, "{", `1 - - [`, `1 - - [01/Nov/2026:00:00:00 +0000] " " 200`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var l Line
		if l.parse(text) != access {
			return
		}
		if l.Begin > l.End || l.Method == "" {
			t.Errorf("%q: %+v", text, l)
		}
		l.request("example.com")
		for _, field := range []string{fieldHost, "header Cookie", "header X.Y*", fieldBody} {
			l.lacks(field, "")
		}
	})
}

// TestLongLinesAreBounded reads a log of lines of a MiB each, as clients with long headers make them,
// which all wait to be put in order: what waits is bounded in bytes, too.
func TestLongLinesAreBounded(t *testing.T) {
	const lines, longest = 400, 192 << 20
	path := filepath.Join(t.TempDir(), "access.log.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1<<20)
	for i := range lines / 100 { // as many members of one file
		var member bytes.Buffer
		zip := gzip.NewWriter(&member)
		fmt.Fprintf(zip, `{"ts":%d.5,"msg":"handled request","request":{"remote_ip":"10.0.0.1","method":"GET","host":"a","uri":"/","headers":{"Cookie":["%s"]}},"duration":0.1,"status":200}`+"\n", 1_700_000_000+i, long)
		if err := zip.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(bytes.Repeat(member.Bytes(), 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	n, most := 0, uint64(0)
	logs := Logs{Paths: []string{path}, Each: func(*Line) error {
		if n++; n%100 == 50 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
		return nil
	}}
	if read, err := logs.Read(); err != nil || read.Lines != lines || read.Late != 0 || most > longest {
		t.Errorf("%+v, %v, %d MiB of heap: want %d lines in at most %d MiB", read, err, most>>20, lines, longest>>20)
	}
}

// TestFieldsOfMatchers checks what each form of a matcher reads.
func TestFieldsOfMatchers(t *testing.T) {
	for text, want := range map[string]string{
		`{"client_ip": {"ranges": ["10.0.0.0/8"]}}`: fieldAddress, `{"tls": {}}`: fieldTLS, `{"protocol": "https"}`: fieldTLS, `{"protocol": "http/2"}`: "", `{"protocol": "grpc"}`: "header Content-Type",
		`{"vars": {"plan": ["gold"]}}`: fieldSet, `{"vars_regexp": {"plan": {"pattern": "gold"}}}`: fieldSet, `{"vars": {"{http.request.scheme}": ["https"]}}`: fieldTLS,
		`{"expression": "tls()"}`: fieldTLS, `{"expression": {"expr": "client_ip('10.0.0.0/8')"}}`: fieldAddress, `{"expression": "vars({'plan': 'gold'})"}`: fieldSet,
		`{"expression": "header_regexp('X-C', '^a')"}`: "header X-C", `{"url_pattern": {"pattern": "/a"}}`: "", `{"header_regexp": {"X-D": {"pattern": "a"}}}`: "header X-D",
		`{"expression": "{time.now.unix} > 1"}`: fieldTime, `"{http.request.remote.host/24}"`: fieldRemote, `"{http.request.local.host}"`: fieldLocal,
	} {
		if got := strings.Join(fieldsIn([]byte(text)), ", "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
