//go:build unix

package main

import (
	"fmt"
	"strings"
)

const header = `# Mutants

One thing is broken at a time, in Go and in Lua, and the tests have to notice.
This table is the output of ` + "`make mutants`" + `, which runs ` + "`go run ./mutants`" + ` in
` + "`test/exact/`" + `. A mutant that no test can notice has its reason beside it.

`

// verdict describes the outcome.
func (o *outcome) verdict() string {
	switch {
	case o.killer != "" && o.equivalent != "":
		return "KILLED by " + o.killer + " though it is said to be equivalent: " + o.equivalent
	case o.killer != "":
		return "killed by " + o.killer
	case o.equivalent != "":
		return "equivalent: " + o.equivalent
	}
	return "SURVIVED"
}

// good reports whether the outcome is the expected one.
func (o *outcome) good() bool {
	return (o.killer == "") == (o.equivalent != "")
}

// row returns the mutant's row of the table.
func (m *mutant) row(verdict string) string {
	return fmt.Sprintf("| %s | %s | %s | %s |", m.name, m.in, m.breaks, verdict)
}

// report returns the table. Verdicts of mutants that were not tried are taken from the
// last one.
func report(outcomes []outcome, last string) string {
	verdicts := make(map[string]string)
	for line := range strings.Lines(last) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 4 {
			verdicts[strings.TrimPrefix(cells[0], "| ")] = strings.TrimSuffix(cells[3], " |")
		}
	}
	for _, o := range outcomes {
		verdicts[o.name] = o.verdict()
	}
	var body strings.Builder
	killed, equivalent, all := 0, 0, 0
	for _, m := range mutants() {
		verdict, ok := verdicts[m.name]
		if !ok {
			continue
		}
		fmt.Fprintln(&body, m.row(verdict))
		all++
		if strings.HasPrefix(verdict, "killed by ") {
			killed++
		} else if strings.HasPrefix(verdict, "equivalent: ") {
			equivalent++
		}
	}
	return fmt.Sprintf("%s%d mutants: %d killed, %d equivalent, %d neither.\n\n| mutant | in | what it breaks | verdict |\n|---|---|---|---|\n%s",
		header, all, killed, equivalent, all-killed-equivalent, body.String())
}
