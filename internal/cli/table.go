package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// table is a table of texts. Cells of several lines are aligned, and the lines of the widest
// column are wrapped if the table is wider than the terminal.
type table struct {
	head  []string
	rows  [][]string
	right map[int]bool // columns of numbers
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

const columnGap = 2

// print prints the table in that many columns of characters; 0: as wide as it is.
func (t *table) print(w io.Writer, width int) {
	all := append([][]string{t.head}, t.rows...)
	widths := make([]int, len(t.head))
	for _, row := range all {
		for i, c := range row {
			for line := range strings.SplitSeq(c, "\n") {
				widths[i] = max(widths[i], utf8.RuneCountInString(line))
			}
		}
	}
	t.fit(widths, width)
	for _, row := range all {
		t.printRow(w, row, widths)
	}
}

// minColumn is the least width to which a column is cut.
const minColumn = 12

// fit makes the widest columns narrower until the table fits.
func (t *table) fit(widths []int, width int) {
	if width <= 0 {
		return
	}
	total := columnGap * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	for ; total > width; total-- {
		widest := 0
		for i, n := range widths {
			if !t.right[i] && (n > widths[widest] || t.right[widest]) {
				widest = i
			}
		}
		if widths[widest] <= minColumn {
			return
		}
		widths[widest]--
	}
}

func (t *table) printRow(w io.Writer, row []string, widths []int) {
	cells := make([][]string, len(row))
	lines := 0
	for i, c := range row {
		cells[i] = wrap(c, widths[i])
		lines = max(lines, len(cells[i]))
	}
	for n := range lines {
		var b strings.Builder
		for i, c := range cells {
			text := ""
			if n < len(c) {
				text = c[n]
			}
			pad := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(text)))
			if t.right[i] {
				text, pad = pad+text, ""
			}
			b.WriteString(text + pad + strings.Repeat(" ", columnGap))
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// wrap breaks the lines of a cell at spaces, and where there is none, so that they have that
// many characters at most.
func wrap(cell string, width int) (lines []string) {
	for line := range strings.SplitSeq(cell, "\n") {
		for utf8.RuneCountInString(line) > width {
			runes := []rune(line)
			at := strings.LastIndexByte(string(runes[:width+1]), ' ')
			cut := string(runes[:width])
			if at > 0 {
				cut = line[:at]
			}
			lines = append(lines, cut)
			line = strings.TrimPrefix(line[len(cut):], " ")
		}
		lines = append(lines, line)
	}
	return lines
}

// widthOf returns the width of the terminal that w is, in characters; 0: w is none, and a
// table may be as wide as it is. The variable COLUMNS wins.
func widthOf(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}
