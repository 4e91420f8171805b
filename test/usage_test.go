package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// usageCase is a response as a provider sends it, with what it costs: the files in testdata/usage.
// A case begins with a line "== name" and lines of options:
//
//	format   the name of the rows that read it, and auto does; "only auto": that alone
//	type     Content-Type, "-": none; default application/json
//	request  the body of the request
//	want     tokens of the input, cached, written and of the output
//	unknown  it tells nothing, so that no less than the hold is charged
//	ends     clients leave after it, before the upstream ends it
//
// Then the body follows, in which the word tok stands in each event that has text.
type usageCase struct {
	name, contentType, request string
	formats                    []string
	want                       [len(usageParts)]int
	ends                       bool
	pieces                     []string // events, lines, or the whole body
}

// usageParts are the weights, each of which has a zone of its own.
var usageParts = [...]string{"input", "cached", "cache_write", "output"}

var bodyEscapes = strings.NewReplacer(`\xef`, "\xef", `\xbb`, "\xbb", `\xbf`, "\xbf", `\x1e`, "\x1e", `\x00`, "\x00", `\x01`, "\x01", `\r`, "\r", `\n`, "\n", `\t`, "\t")

// usageCases reads the cases.
func usageCases(t *testing.T) (all []*usageCase) {
	files, err := filepath.Glob("testdata/usage/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range strings.Split("\n"+string(text), "\n== ")[1:] {
			all = append(all, parseUsageCase(t, filepath.Base(file), one+"\n"))
		}
	}
	return all
}

func parseUsageCase(t *testing.T, file, text string) *usageCase {
	name, text, _ := strings.Cut(text, "\n")
	c := &usageCase{name: file + ": " + name, contentType: "application/json", request: `{"messages":[]}`, formats: []string{"auto", ""}}
	unknown := false
	for {
		line, rest, _ := strings.Cut(text, "\n")
		option, value, _ := strings.Cut(line, " ")
		switch option {
		case "format":
			c.formats[1] = value
		case "only":
			c.formats = c.formats[:1]
		case "type":
			c.contentType = value
		case "request":
			c.request = value
		case "unknown":
			unknown = true
		case "ends":
			c.ends = true
		case "want":
			if n, err := fmt.Sscan(value, &c.want[0], &c.want[1], &c.want[2], &c.want[3]); n != len(c.want) {
				t.Fatalf("%s: want %q: %v", c.name, value, err)
			}
		default:
			for i := range c.want {
				if unknown {
					c.want[i] = max(1, c.want[i])
				}
			}
			c.pieces = usagePieces(bodyEscapes.Replace(text))
			return c
		}
		text = rest
	}
}

// usagePieces splits a body after its events, lines, or elements.
func usagePieces(body string) []string {
	end := "\n"
	switch {
	case strings.Contains(body, "\r\n\r\n"):
		end = "\r\n\r\n"
	case strings.Contains(body, "data:"):
		end = "\n\n"
	case strings.Contains(body, "{\n"):
		return []string{body}
	}
	pieces := strings.SplitAfter(body, end)
	return slices.DeleteFunc(pieces, func(p string) bool { return strings.TrimSpace(p) == "" })
}

// usageSite runs zones for each part and format before an upstream that answers the cases.
func usageSite(t *testing.T, all []*usageCase) *site {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		i, _ := strconv.Atoi(r.Header.Get("X-Case"))
		n, _ := strconv.Atoi(r.Header.Get("X-Pieces"))
		c := all[i]
		if w.Header()["Content-Type"] = nil; c.contentType != "-" { // none, not one that the server detects
			w.Header().Set("Content-Type", c.contentType)
		}
		for _, p := range c.pieces[:n] {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
		switch r.Header.Get("X-End") {
		case "cut":
			panic(http.ErrAbortHandler)
		case "leave":
			<-r.Context().Done()
		}
	}))
	t.Cleanup(up.Close)
	var b strings.Builder
	for _, format := range []string{"auto", "openai", "anthropic", "gemini", "ollama", "cohere", "bedrock", "llamacpp"} {
		fmt.Fprintf(&b, "handle /%s {\nrate_limit {\n", format)
		for _, part := range usageParts {
			fmt.Fprintf(&b, "zone %s_%s {\nkey {header.X-Key}\ntokens %s {\n", part, format, format)
			for _, other := range usageParts {
				weight := "0"
				if other == part {
					weight = "1"
				}
				fmt.Fprintf(&b, "%s %s\n", other, weight)
			}
			b.WriteString("reserve 1\n}\nrule 1000000/1h\n}\n")
		}
		fmt.Fprintf(&b, "}\nreverse_proxy %s {\nflush_interval -1\n}\n}\n", up.Listener.Addr())
	}
	return serve(t, setup{site: b.String()})
}

// replay sends a case of which so many pieces come, and returns what is charged.
func (c *usageCase) replay(s *site, index int, format string, pieces int, end string) (got [len(usageParts)]int) {
	s.Helper()
	key := fmt.Sprint(index, format, pieces, end)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	q := req{method: "POST", path: "/" + format, body: c.request, ctx: ctx, header: map[string]string{
		"X-Key": key, "Content-Type": "application/json", "X-Case": strconv.Itoa(index), "X-Pieces": strconv.Itoa(pieces), "X-End": end,
	}}
	resp, err := s.client.Do(q.http(s))
	if err != nil {
		if end == "cut" {
			return got
		}
		s.Fatal(err)
	}
	want := strings.Join(c.pieces[:pieces], "")
	read := make([]byte, len(want))
	if _, err := io.ReadFull(resp.Body, read); (err != nil || !bytes.Equal(read, []byte(want))) && !errors.Is(err, io.ErrUnexpectedEOF) {
		s.Errorf("%s: the client got %q, want %q: %v", c.name, read, want, err)
	}
	if end != "leave" {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	leave()
	_ = resp.Body.Close()
	ended(s)
	for i, part := range usageParts {
		got[i] = int(s.key(http.MethodGet, part+"_"+format, key).Rules[0].Used)
	}
	return got
}

// TestUsage replays the responses of providers, in the formats that read them: whole, left by the
// client after the last event, and cut after each event.
func TestUsage(t *testing.T) {
	all := usageCases(t)
	s := usageSite(t, all)
	right := 0
	for i, c := range all {
		ok := true
		ends := []string{""}
		if c.ends {
			ends = append(ends, "leave")
		}
		for _, format := range c.formats {
			for _, end := range ends {
				if got := c.replay(s, i, format, len(c.pieces), end); got != c.want {
					t.Errorf("%s, tokens %s, end %q: %v charged, want %v", c.name, format, end, got, c.want)
					ok = false
				}
			}
		}
		for n := range c.pieces[1:] {
			c.cut(s, i, n+1)
		}
		if ok {
			right++
		}
	}
	t.Logf("%d of %d cases right", right, len(all))
}

// cut cuts a stream after some events. Each that had text costs at least a token of the output,
// and there is always input.
func (c *usageCase) cut(s *site, index, pieces int) {
	got := c.replay(s, index, "auto", pieces, "cut")
	texts := 0
	for _, p := range c.pieces[:pieces] {
		if strings.Contains(p, `tok"`) {
			texts++
		}
	}
	most := max(c.want[3], texts+1, pieces)
	if out := got[3]; got[0]+got[1]+got[2] == 0 || out < texts || out > most {
		s.Errorf("%s, cut after %d events: %v charged, want input, and an output of %d to %d", c.name, pieces, got, texts, most)
	}
}
