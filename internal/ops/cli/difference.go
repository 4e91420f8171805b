package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/aryann/difflib"
)

const (
	aroundDifference = 3   // lines that are printed before and after what differs
	mostCompared     = 5e6 // pairs of lines; beyond it, only their numbers are printed
)

// difference prints the lines of two texts that are only in one, and some around them. It reports
// whether there are any.
func difference(w io.Writer, before, after []byte) bool {
	if bytes.Equal(before, after) {
		return false
	}
	a, b := strings.Split(string(before), "\n"), strings.Split(string(after), "\n")
	if len(before) == 0 {
		a = nil
	}
	if len(a)*len(b) > mostCompared {
		fmt.Fprintf(w, "%d lines become %d\n", len(a), len(b))
		return true
	}
	last := -1 // the last line that was printed
	list := difflib.Diff(a, b)
	for i, r := range list {
		if r.Delta == difflib.Common {
			continue
		}
		for n := max(last+1, i-aroundDifference); n < min(len(list), i+aroundDifference+1); n++ {
			fmt.Fprintf(w, "%v %s\n", list[n].Delta, safe(list[n].Payload))
			last = n
		}
	}
	return true
}
