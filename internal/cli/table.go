package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table is a table of texts with a head.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

const columnGap = 2

// print prints the table.
func (t *table) print(w io.Writer) {
	to := tabwriter.NewWriter(w, 0, 0, columnGap, ' ', 0)
	for _, cells := range append([][]string{t.head}, t.rows...) {
		fmt.Fprintln(to, strings.Join(cells, "\t"))
	}
	_ = to.Flush() // as other writes to the terminal
}
