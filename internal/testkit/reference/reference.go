// Package reference writes docs/reference.md from the comments and types of the code, so
// that the page says what the code does. Everything that the code lets users write must
// stand in its tables; otherwise there is an error.
package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dianalimiter/diana/internal/testkit/trace"
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
	s, err := readSource(root, ".", "config", "internal/configure/compat", "rules", "rules/sources", "algorithms", "internal/stores/redisconfig")
	if err != nil {
		return "", err
	}
	p := &page{root: root, source: s}
	p.syntax()
	for _, x := range sections {
		p.section(x)
	}
	for _, write := range []func(){p.placeholders, p.events, p.logs, p.metrics, p.commands, p.environment} {
		write()
	}
	p.words()
	if len(p.missing) > 0 {
		return "", fmt.Errorf("the tables of internal/testkit/reference are incomplete:\n%s", strings.Join(p.missing, "\n"))
	}
	text := strings.TrimRight(p.String(), "\n") + "\n"
	return intro + contents(text) + "\n" + text, nil
}

// contents returns a line of links to the sections of a text.
func contents(text string) string {
	var links []string
	for _, m := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(text, -1) {
		anchor := strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		links = append(links, "["+m[1]+"](#"+anchor+")")
	}
	return strings.Join(links, " ·\n") + "\n"
}

const intro = `# Reference

Every option of the Caddyfile and every JSON field, then placeholders, events, logs, metrics and commands. The [admin API](admin-api.md) has a page of its own, and the
[glossary](glossary.md) explains terms. Most configurations need only [twenty options](options.md).
This page is generated from the code by ` + "`UPDATE_GOLDENS=1 go test -run TestReference ./test`" + `.

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
	unwritten := make(map[string]field)
	for _, f := range fields {
		unwritten[f.name] = f
	}
	options := make(map[string]option)
	for _, o := range x.options {
		options[o.field] = o
	}
	if x.table {
		p.line("| option | meaning | type | default |\n|---|---|---|---|")
	}
	for _, g := range x.grouped(fields) {
		if g.title != "" {
			p.line("### %s: %s\n", strings.ReplaceAll(x.title, "`", ""), strings.ToLower(g.title[:1])+g.title[1:])
		}
		for _, name := range g.fields {
			o, ok := options[name]
			f, ok2 := unwritten[name]
			if !ok || !ok2 {
				p.lacks("section %q: field %s of %s has no entry, or two", x.title, name, x.typ)
				continue
			}
			delete(options, name)
			delete(unwritten, name)
			p.option(x, o, f)
		}
	}
	if x.table {
		p.line("")
	}
	for name := range options {
		p.lacks("section %q: %s has no field %s", x.title, x.typ, name)
	}
	for name := range unwritten {
		p.lacks("section %q: field %s of %s is in no group", x.title, name, x.typ)
	}
}

// grouped returns the groups of a section: one without a title, if it has none.
func (x section) grouped(fields []field) []group {
	if x.groups != nil {
		return x.groups
	}
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return []group{{"", all}}
}

// option writes one option.
func (p *page) option(x section, o option, f field) {
	level := "###"
	if x.groups != nil {
		level = "####"
	}
	if f.def == "" {
		p.lacks("section %q: the comment of field %s says no default", x.title, f.name)
	}
	if x.table {
		meaning := f.doc
		if o.reload == anew {
			meaning += " Another value " + o.reload
		}
		p.line("| %s | %s | %s | %s |", inTable(f.name, o.syntax), strings.ReplaceAll(meaning, "|", `\|`), f.typ, f.def)
		if _, err := example(x, o); err != nil {
			p.lacks("section %q: the example of %s: %v", x.title, o.field, err)
		}
		return
	}
	p.line("%s `%s`\n", level, f.name)
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
	if o.reload != keeps && o.reload != near {
		p.line("- Reload: %s", o.reload)
	}
	if o.document {
		p.line("- Document: yes")
	}
	p.line("")
}

// inTable returns an option as a table has it: with its JSON field, if that is another word.
func inTable(field, syntax string) string {
	syntax = strings.ReplaceAll(syntax, "|", `\|`)
	if word, _, _ := strings.Cut(syntax, " "); word == field {
		return "`" + syntax + "`"
	}
	return fmt.Sprintf("`%s`, in JSON `%s`", syntax, field)
}

// example returns the JSON of an option's example.
func example(x section, o option) (string, error) {
	context := x.context
	if context == inStore && strings.HasPrefix(o.example, "store ") { // a whole store
		context = inGlobal
	}
	return adapted(fmt.Sprintf(context, o.example), append(x.path[:len(x.path):len(x.path)], o.field))
}

// example writes an example in both forms. The JSON is what the Caddyfile is adapted to.
func (p *page) example(x section, o option) {
	value, err := example(x, o)
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
