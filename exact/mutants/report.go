//go:build unix

package main

import (
	"fmt"
	"strings"
)

const header = `# Mutants

One thing is broken at a time, in Go and in Lua, and the tests have to notice.
This table is the output of ` + "`make mutants`" + `, which runs ` + "`go run ./mutants`" + ` in
` + "`exact/`" + `. A mutant that no test can notice has its reason beside it.

`

// verdict says what became of a mutant.
func (o *outcome) verdict() string {
	switch {
	case o.err != nil:
		return "DOES NOT BUILD"
	case o.killer != "" && o.equivalent != "":
		return "KILLED by " + o.killer + " though it is said to be equivalent: " + o.equivalent
	case o.killer != "":
		return "killed by " + o.killer
	case o.equivalent != "":
		return "equivalent: " + o.equivalent
	}
	return "SURVIVED"
}

// good says whether it is as it should be.
func (o *outcome) good() bool {
	return o.err == nil && (o.killer == "") == (o.equivalent != "")
}

// report returns the table, and how many mutants are not as they should be.
func report(outcomes []outcome) (table string, bad int) {
	var b strings.Builder
	killed, equivalent := 0, 0
	for _, o := range outcomes {
		switch {
		case !o.good():
			bad++
		case o.killer != "":
			killed++
		default:
			equivalent++
		}
	}
	b.WriteString(header)
	fmt.Fprintf(&b, "%d mutants: %d killed, %d equivalent, %d neither.\n", len(outcomes), killed, equivalent, bad)
	b.WriteString("\n| mutant | in | what it breaks | verdict |\n|---|---|---|---|\n")
	for _, o := range outcomes {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", o.name, o.file, o.breaks, o.verdict())
		if o.err != nil {
			fmt.Fprintf(&b, "\n    %s\n", strings.ReplaceAll(o.err.Error(), "\n", "\n    "))
		}
	}
	return b.String(), bad
}
