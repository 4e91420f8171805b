package reference

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// syntax writes everything that a Caddyfile can have as one block, and a configuration in both
// forms.
func (p *page) syntax() {
	p.line("## Syntax\n\n```text\n{\n\trate_limit {")
	p.block(sectionAt(appPath)[0], "\t\t")
	p.line("\t}\n}\n\nrate_limit [<matcher>] [<key>] <rate> [<algorithm>]\n\nrate_limit [<matcher>] {")
	p.block(sectionAt(handlerPath)[0], "\t")
	p.line("}\n\nrate_limit_page [<matcher>]\n\nrate_limit_quota [<matcher>] [<zone>...]\n```\n")
	p.line("The first block is a global option. `<rate>` is `<limit>/<window>`, such as `100/1m` or `20000/d`, or `{<placeholder>}/<window> else <limit>`. " +
		"`<rules>` are lines with `rule`. `<algorithm> [<options>]` is one of\n\n```text")
	for _, x := range sectionAt(append(rulePath[:12:12], "algorithm")) {
		name := strings.Trim(strings.TrimPrefix(x.title, "Algorithm "), "`")
		line := name
		for _, o := range x.options {
			if after, ok := strings.CutPrefix(o.syntax, name+" "); ok { // the time zone of a calendar
				line += " " + after
			} else {
				line += " [" + o.syntax + "]"
			}
		}
		p.line("%s", line)
	}
	p.line("sliding_log\n```\n")
	p.line("Durations are written as in Caddy: `250ms`, `10s`, `1h30m`, `1d`; in JSON as such a text, or as a " +
		"number of nanoseconds. A reload with another value keeps the counts, unless \"Reload\" in the sections below says otherwise. " +
		"\"Document\" says that a [document of a rule source](rules.md) can change the value at run time.\n")
	p.line("## A complete configuration\n\n```caddyfile\n%s```\n", complete)
	p.line("The same in JSON, as `caddy adapt` prints it:\n")
	var b bytes.Buffer
	adapted, err := trace.Adapt(complete)
	if err == nil {
		err = json.Indent(&b, adapted, "", "  ")
	}
	if err != nil {
		p.lacks("the complete configuration: %v", err)
	}
	p.line("```json\n%s\n```\n", b.String())
}

const complete = `{
	rate_limit {
		store redis 10.0.0.5:6379 {
			username   diana
			password   {env.REDIS_PASSWORD}
			key_secret {env.KEY_SECRET}
		}
		rules redis diana:rules
	}
}

:8080 {
	rate_limit {
		zone account {
			match path /api/*
			key   {header.X-Account}
			rule  10/s gcra burst 20
			rule  100000/1d name day
			cost  {header.X-Cost}
			override customer-7 {
				rule 100/s gcra burst 200
				rule 1000000/1d name day
			}
		}
		zone login {
			match path /login
			key   {client_ip}
			rule  5/5m block 1h
			count_status 401 403
		}
		log_key
	}
	reverse_proxy localhost:9000
}
`

// sectionAt returns the sections of the types at a path in the JSON.
func sectionAt(path []string) (found []section) {
	for _, x := range sections {
		if slices.Equal(x.path, path) && !slices.ContainsFunc(found, func(y section) bool { return y.title == x.title }) {
			found = append(found, x)
		}
	}
	return found
}

// block writes the lines of a section's options, without those on the line that opens the block.
func (p *page) block(x section, indent string) {
	for _, g := range x.grouped(p.source.fields[x.typ]) {
		if g.title == compat {
			continue
		}
		for _, name := range g.fields {
			i := slices.IndexFunc(x.options, func(o option) bool { return o.field == name })
			if i < 0 || x.options[i].syntax == "" {
				continue
			}
			if opens(x, x.options[i]) {
				if _, inside, ok := strings.Cut(x.options[i].syntax, " { "); ok && !strings.Contains(inside, "options") {
					p.line("%s%s", indent, strings.TrimSuffix(inside, " }"))
				}
				continue
			}
			for _, form := range forms(x.options[i].syntax) {
				p.form(append(x.path[:len(x.path):len(x.path)], name), form, indent)
			}
		}
	}
}

// opens reports whether an option is written on the line that opens its section's block.
func opens(x section, o option) bool {
	word, _, _ := strings.Cut(o.syntax, " ")
	switch x.path[len(x.path)-1] {
	case word:
		return true
	case "0": // of a list, which JSON names in the plural
		return strings.HasPrefix(x.path[len(x.path)-2], word)
	}
	return false
}

// form writes one way to write an option, with the block of the sections at its path.
func (p *page) form(path []string, form, indent string) {
	head, inside, isBlock := strings.Cut(form, " { ")
	if !isBlock {
		p.line("%s%s", indent, head)
		return
	}
	inner := append(sectionAt(path), sectionAt(append(path[:len(path):len(path)], "0"))...)
	if !strings.Contains(inside, "options") || len(inner) == 0 {
		p.line("%s%s {\n%s\t%s\n%s}", indent, head, indent, strings.TrimSuffix(inside, " }"), indent)
		return
	}
	for _, x := range inner {
		line := head
		if len(inner) > 1 { // modules, each with a line of its own
			line = x.options[0].syntax
		}
		p.line("%s%s {", indent, line)
		p.block(x, indent+"\t")
		p.line("%s}", indent)
	}
}

// forms returns the ways to write an option.
func forms(syntax string) (all []string) {
	word, _, _ := strings.Cut(syntax, " ")
	for _, form := range regexp.MustCompile(`, (?:or )?`).Split(syntax, -1) {
		if strings.HasPrefix(form, word) {
			all = append(all, form)
		}
	}
	return all
}
