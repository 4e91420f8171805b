package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// compatCase is a case of test/compat/cases.txt.
type compatCase struct {
	plugin, source, name string
	pass, differs        bool
	refused              string // a text of the error; empty: it loads
	config, trace        string
}

func compatCases(t *testing.T) (list []compatCase) {
	t.Helper()
	_, text, _ := strings.Cut(textOf(t, "test/compat/cases.txt"), "\n=== ")
	for _, s := range strings.Split(text, "\n=== ") {
		head, rest, _ := strings.Cut(s, "\n")
		verdict, rest, _ := strings.Cut(rest, "\n")
		words := strings.SplitN(head, " / ", 3)
		config, steps, ok := strings.Cut(rest, "\n---\n")
		if len(words) != 3 || !ok {
			t.Fatalf("case %q: want its plugin, source and name, and a line --- before the trace", head)
		}
		c := compatCase{plugin: words[0], source: words[1], name: words[2], config: config, trace: steps, pass: verdict == "pass"}
		_, c.refused, _ = strings.Cut(verdict, "refused: ")
		c.differs = strings.HasPrefix(verdict, "differs: ")
		if !c.pass && !c.differs && c.refused == "" || (c.refused == "") != (strings.TrimSpace(steps) != "") {
			t.Fatalf("case %q: verdict %q, trace %q", head, verdict, steps)
		}
		list = append(list, c)
	}
	return list
}

// adapted returns the configuration as JSON.
func (c *compatCase) adapted() ([]byte, error) {
	if handler, ok := strings.CutPrefix(c.config, "json\n"); ok {
		return fmt.Appendf(nil, `{"apps": {"http": {"servers": {"srv0": {"listen": [":8080"], "routes": [{"handle": [%s, {"handler": "static_response", "status_code": 200}]}]}}}}}`, handler), nil
	}
	return trace.Adapt(c.config)
}

func (c *compatCase) run(t *testing.T) {
	s, p := newSite(t), trace.Place{}
	if strings.Contains(c.config, "store redis") {
		p.Redis = redistest.Start(t).Addr
	}
	adapted, err := c.adapted()
	if err == nil {
		_, err = s.loadText(adapted, p)
	}
	switch {
	case (err != nil) != (c.refused != ""):
		t.Fatalf("error %v, want %q", err, c.refused)
	case err != nil:
		if !strings.Contains(err.Error(), c.refused) {
			t.Errorf("error %v, want %q", err, c.refused)
		}
		// Of a Caddyfile the line, of JSON the field or the zone.
		if !strings.HasPrefix(c.config, "json\n") && !strings.Contains(err.Error(), "Caddyfile:") && !strings.Contains(err.Error(), "zone ") {
			t.Errorf("no line in %v", err)
		}
	default:
		s.run(c.trace)
	}
}

// TestCompatCases runs the cases of other plugins, and compares their numbers with
// docs/migrating.md.
func TestCompatCases(t *testing.T) {
	type row struct{ cases, pass, refused, differ int }
	rows := make(map[string]row)
	for _, c := range compatCases(t) {
		t.Run(c.plugin+"/"+c.source+"/"+c.name, c.run)
		r := rows[c.plugin+" | "+c.source]
		r.cases++
		switch {
		case c.differs:
			r.differ++
		case c.pass:
			r.pass++
		default:
			r.refused++
		}
		rows[c.plugin+" | "+c.source] = r
	}
	doc := textOf(t, "docs/internals/compat.md")
	for name, r := range rows {
		line := fmt.Sprintf("| %s | %d | %d | %d | %d |", name, r.cases, r.pass, r.refused, r.differ)
		t.Log(line)
		if !strings.Contains(doc, line) {
			t.Errorf("docs/internals/compat.md has no line %s", line)
		}
	}
}
