package limiter

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// headers are the values of the rate limit headers of a response.
type headers struct {
	draft    [2]string                  // of draftNames; empty: not set
	families [numFamilies]*familyValues // of allFamilies; nil: not set
}

// familyValues are the values of a family of headers.
type familyValues struct {
	values [3]string // the limit, what remains of it, and the time until the reset
	denies bool      // whether the rule denies the request
}

const (
	headerContentType       = "Content-Type"
	headerRetryAfter        = "Retry-After"
	headerCacheControl      = "Cache-Control"
	headerRetryMilliseconds = "Retry-After-Ms" // of OpenAI's API
	headerShouldRetry       = "X-Should-Retry" // of OpenAI's API
)

// add appends the headers of a later handler. It keeps the numbers of the nearest rule, or of
// the one that denies.
func (h *headers) add(later *headers) {
	for i := range h.draft {
		h.draft[i] = join(h.draft[i], later.draft[i])
	}
	for i, n := range later.families {
		if n != nil && (h.families[i] == nil || n.countsBefore(h.families[i])) {
			h.families[i] = n
		}
	}
}

// has reports whether one of some families is set.
func (h *headers) has(families []int) bool {
	return slices.ContainsFunc(families, func(f int) bool { return h.families[f] != nil })
}

// addDenial appends the headers of a denial by a later handler. Numbers are those of the denial alone: an
// earlier handler's would say that there is something left.
func (h *headers) addDenial(denial *headers) {
	for f, n := range denial.families {
		if n == nil {
			h.families[f] = nil
		}
	}
	h.add(denial)
}

// countsBefore reports whether the numbers count instead of an earlier handler's.
func (n *familyValues) countsBefore(earlier *familyValues) bool {
	if n.denies || earlier.denies {
		return n.denies
	}
	var parsed [4]int64
	for i, text := range [...]string{n.values[remains], n.values[0], earlier.values[remains], earlier.values[0]} {
		parsed[i], _ = strconv.ParseInt(text, 10, 64)
	}
	return nearer(parsed[0], parsed[1], parsed[2], parsed[3])
}

// join returns two lists of items as one. Of a rule that is in both, which an error route may
// decide again, the later item is kept.
func join(list, later string) string {
	b := make([]byte, 0, len(list)+len(", ")+len(later))
	for item := range strings.SplitSeq(list, ", ") {
		if name := item[:strings.IndexByte(item, ';')+1]; !strings.Contains(later, name) {
			b = append(separate(b), item...)
		}
	}
	if later != "" {
		b = append(separate(b), later...)
	}
	return string(b)
}

// set sets the headers in place of an upstream's. An upstream that has less left keeps its
// own: of each family, all or none. A response has both headers of the draft, or none. The values are slices of h, to save allocations, each of full
// capacity, so that appending to one does not overwrite the next.
func (h *headers) set(to http.Header) {
	if ours := h.draft[atLimit]; ours != "" && !hasLess(to[draftNames[atLimit]], ours) {
		to[draftNames[atPolicy]] = h.draft[atPolicy:atLimit:atLimit]
		to[draftNames[atLimit]] = h.draft[atLimit:]
	}
	for f, n := range &h.families {
		if n == nil {
			continue
		}
		names := &allFamilies[f].names
		if hasLess(to[names[remains]], n.values[remains]) {
			continue
		}
		for i, name := range names {
			to[name] = n.values[i : i+1 : i+1]
		}
	}
}

// hasLess reports whether an upstream's values of a header, if there are any, say that less remains than
// ours does.
func hasLess(theirs []string, ours string) bool { return len(theirs) > 0 && isLess(theirs, ours) }

// isLess is hasLess of a header that an upstream has set.
func isLess(theirs []string, ours string) bool {
	least, ok := leastLeft(theirs)
	own, _ := leastLeft([]string{ours})
	return ok && least < own
}

// leastLeft returns the least of what remains by values of a header: numbers, or parameters of lists
// as drafts of RateLimit had them at different times.
func leastLeft(values []string) (least int64, ok bool) {
	for _, value := range values {
		for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == ';' }) {
			part = strings.TrimSpace(part)
			if name, number, named := strings.Cut(part, "="); named {
				if name = strings.ToLower(strings.TrimSpace(name)); name != "r" && name != "remaining" {
					continue
				}
				part = strings.TrimSpace(number)
			}
			// Some upstreams have fractions.
			if n, err := strconv.ParseFloat(part, 64); err == nil && n >= 0 && n < 1<<62 && (!ok || int64(n) < least) {
				least, ok = int64(n), true
			}
		}
	}
	return least, ok
}
