package config

import (
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dianalimiter/diana/internal/key"
)

const (
	maxGroupParts = 4
	maxGroupPart  = 64 // bytes of a value
	groupsBetween = " / "
	emptyPart     = "-"

	// otherGroup is the group of the costs for whose groups there was no room: see internal/metrics.
	otherGroup = "other"
)

// GroupBy is what costs are added up by, parsed once when provisioning.
type GroupBy struct{ parts []key.Template }

// parseGroupBy parses the parts of group_by; nil: there are none.
func parseGroupBy(parts []string) (*GroupBy, error) {
	switch {
	case len(parts) == 0:
		return nil, nil
	case len(parts) > maxGroupParts:
		return nil, fmt.Errorf("group_by: %d parts: want at most %d", len(parts), maxGroupParts)
	}
	g := new(GroupBy)
	for _, s := range parts {
		t, err := key.Parse(Expand(s))
		if err != nil {
			return nil, fmt.Errorf("group_by: %w", err)
		}
		if _, constant := t.Constant(); constant {
			return nil, fmt.Errorf("group_by %q: the same for all requests: want a placeholder, such as {http.auth.user.id} or {body.model}", s)
		}
		if slices.ContainsFunc(t.Placeholders(), isCredential) {
			return nil, fmt.Errorf("group_by %s: a credential would be in metrics: want what it stands for, such as {http.auth.user.id} or a variable of map", s)
		}
		g.parts = append(g.parts, t)
	}
	return g, nil
}

// Placeholders returns the names of the placeholders in all parts.
func (g *GroupBy) Placeholders() (names []string) {
	for _, t := range g.parts {
		names = append(names, t.Placeholders()...)
	}
	return names
}

// ReadsBody reports whether a part is a field of the request's body.
func (g *GroupBy) ReadsBody() bool {
	return g != nil && slices.ContainsFunc(g.parts, key.Template.ReadsBody)
}

// Of returns the group of a request: its values, with " / " between them. An empty one, or one that
// the request has several times, is "-". Of a value that is longer than 64 bytes, the end is a hash. One that could be
// taken for another group is in quotes.
func (g *GroupBy) Of(r *http.Request) string {
	values := make([]string, len(g.parts))
	for i, t := range g.parts {
		v := shortened(strings.ToValidUTF8(t.Text(r), "\uFFFD"))
		switch values[i] = v; {
		case v == "":
			values[i] = emptyPart
		case ambiguous(v), v == otherGroup && len(values) == 1:
			values[i] = strconv.Quote(v)
		}
	}
	return strings.Join(values, groupsBetween)
}

// shortened returns a value of at most maxGroupPart bytes: of a longer one, the beginning and a hash of all of it.
func shortened(v string) string {
	if len(v) <= maxGroupPart {
		return v
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, v)
	end := fmt.Sprintf("~%08x", h.Sum32())
	n := maxGroupPart - len(end)
	for !utf8.RuneStart(v[n]) {
		n--
	}
	return v[:n] + end
}

// ambiguous reports whether a value looks like several, like none, or like one in quotes.
func ambiguous(v string) bool {
	return v == emptyPart || v[0] == '"' || strings.HasPrefix(v, "/ ") || strings.HasSuffix(v, " /") || strings.Contains(v, groupsBetween)
}

// checkUnit checks the name of what a zone's numbers count. Empty means the default.
func checkUnit(unit string) error {
	if len(unit) > MaxName || strings.Trim(unit, nameCharacters) != "" {
		return fmt.Errorf("unit %q: want a word of 1 to %d of A-Z a-z 0-9 _ and -, such as microdollars", unit, MaxName)
	}
	return nil
}
