// Package reference writes docs/reference.md from the comments and types of the code, so
// that the page says what the code does. Everything that the code lets users write must
// stand in its tables; otherwise there is an error.
package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dianalimiter/diana/internal/trace"
)

// page collects the text of the page, and what is missing.
type page struct {
	bytes.Buffer
	root    string
	source  *source
	missing []string
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) lacks(format string, args ...any) {
	p.missing = append(p.missing, fmt.Sprintf(format, args...))
}

// Write returns the text of docs/reference.md for the source below root.
func Write(root string) (string, error) {
	s, err := readSource(root, ".", "config", "rules", "algorithms", "internal/admin", "internal/cli")
	if err != nil {
		return "", err
	}
	p := &page{root: root, source: s}
	p.line("%s", intro)
	for _, x := range sections {
		p.section(x)
	}
	for _, write := range []func(){p.placeholders, p.events, p.logs, p.metrics, p.admin, p.commands, p.environment} {
		write()
	}
	p.words()
	if len(p.missing) > 0 {
		return "", fmt.Errorf("the tables of internal/reference are incomplete:\n%s", strings.Join(p.missing, "\n"))
	}
	return strings.TrimRight(p.String(), "\n") + "\n", nil
}

const intro = `# Reference

Every word of the Caddyfile and every JSON field, then what Diana says. This page is
generated from the code by ` + "`UPDATE_GOLDENS=1 go test -run TestReference ./test`" + `.

Durations are written as in Caddy: ` + "`250ms`, `10s`, `1h30m`, `1d`" + `; in JSON as such a text, or as a
number of nanoseconds. "Reload" says what loading a configuration with another value does.
"Document" says that a [document of a rule source](rules.md) can change the value at run time.
`

// section writes a block of options.
func (p *page) section(x section) {
	p.line("## %s\n", x.title)
	if x.about != "" {
		p.line("%s\n", x.about)
	}
	fields := p.source.fields[x.typ]
	if len(fields) == 0 {
		p.lacks("%s has no fields", x.typ)
	}
	options := make(map[string]option)
	for _, o := range x.options {
		options[o.field] = o
	}
	for _, f := range fields {
		o, ok := options[f.name]
		if !ok {
			p.lacks("section %q: field %s of %s has no entry", x.title, f.name, x.typ)
			continue
		}
		delete(options, f.name)
		p.option(x, o, f)
	}
	for name := range options {
		p.lacks("section %q: %s has no field %s", x.title, x.typ, name)
	}
}

// option writes one option.
func (p *page) option(x section, o option, f field) {
	p.line("### `%s`\n", f.name)
	if f.def == "" {
		p.lacks("section %q: the comment of field %s says no default", x.title, f.name)
	}
	p.line("%s\n", f.doc)
	if o.syntax != "" {
		p.line("- Caddyfile: `%s`", o.syntax)
	} else {
		p.line("- Caddyfile: none")
	}
	p.line("- Type: %s", f.typ)
	if f.def != "" {
		p.line("- Default: %s", f.def)
	}
	if o.example != "" {
		if word, _, _ := strings.Cut(o.syntax, " "); !slices.Contains(strings.Fields(o.example), word) {
			p.lacks("section %q: the example of %s is one of another option", x.title, o.field)
		}
		p.example(x, o)
	}
	p.line("- Reload: %s", o.reload)
	if o.document {
		p.line("- Document: yes")
	}
	p.line("")
}

// example writes an example in both forms. The JSON is what the Caddyfile is adapted to.
func (p *page) example(x section, o option) {
	context := x.context
	if context == inStore && strings.HasPrefix(o.example, "store ") { // a whole store
		context = inGlobal
	}
	value, err := adapted(fmt.Sprintf(context, o.example), append(x.path[:len(x.path):len(x.path)], o.field))
	if err != nil {
		p.lacks("section %q: the example of %s: %v", x.title, o.field, err)
	}
	if !strings.Contains(o.example, "\n") {
		p.line("- Example: `%s`, in JSON `\"%s\": %s`", o.example, o.field, value)
		return
	}
	block := strings.ReplaceAll(strings.ReplaceAll(o.example, "\n ", "\n\t"), "\n", "\n  ")
	p.line("- Example, in JSON `\"%s\": %s`:\n\n  ```text\n  %s\n  ```\n", o.field, value, block)
}

// adapted returns the JSON value at a path of what a Caddyfile is adapted to.
func adapted(caddyfile string, path []string) (string, error) {
	b, err := trace.Adapt(caddyfile)
	if err != nil {
		return "", err
	}
	var at any
	if err := json.Unmarshal(b, &at); err != nil {
		return "", err
	}
	for _, step := range path {
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(v) {
				return "", fmt.Errorf("%s: no such element", step)
			}
			at = v[i]
		}
		if at == nil {
			return "", fmt.Errorf("%s: no such field in %s", step, b)
		}
	}
	b, err = json.Marshal(at)
	return string(b), err
}
