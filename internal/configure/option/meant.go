package option

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// Distance returns the number of letters to insert, delete, replace or swap with the next to turn
// a into b (optimal string alignment).
func Distance(a, b string) int {
	var last []int // the row before
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], last[j-1]+1)
			}
		}
		last, row = row, next
	}
	return row[len(b)]
}

// Nearest returns the name that an unknown word probably meant: a name that differs in a letter or
// two, or the only name that begins with the word; empty: there is none.
func Nearest(word string, names []string) (nearest string) {
	const longest = 64 // bytes: longer words are no names
	if len(word) > longest {
		return ""
	}
	word = strings.ReplaceAll(strings.ToLower(Bare(word)), "-", "_")
	least := 2 + len(word)/8
	var begun []string
	for _, name := range names {
		if d := Distance(word, name); d < least {
			nearest, least = name, d
		}
		if len(word) > 3 && strings.HasPrefix(name, word) || strings.HasPrefix(name, word+"_") {
			begun = append(begun, name)
		}
	}
	if other := synonym(word); nearest == "" && slices.Contains(names, other) {
		return other
	}
	if nearest == "" && len(begun) == 1 {
		return begun[0]
	}
	return nearest
}

// Bare returns a word without the signs and the value behind it, of which a Caddyfile has none:
// burst of burst=20 and burst:.
func Bare(word string) string {
	word, _, _ = strings.Cut(word, "=")
	return strings.TrimRight(word, ":,;")
}

// synonym returns the word here for a word of other limiters, with or without underscores; empty: there is none.
func synonym(word string) string {
	plain := strings.ReplaceAll(word, "_", "")
	for other, here := range synonyms {
		if strings.ReplaceAll(other, "_", "") == plain {
			return here
		}
	}
	return ""
}

// synonyms maps the words of other limiters to the words that mean the same here.
var synonyms = map[string]string{
	"ban": "block", "penalty": "block", "lockout": "block", "jail": "block", "cooldown": "block",
	"status": "respond", "status_code": "respond", "code": "respond", "message": "respond", "error": "respond", "response": "respond", "reject": "respond",
	"response_body": "respond", "response_code": "respond", "response_status": "respond", "error_message": "respond", "error_body": "respond",
	"limit": "rule", "rate": "rule", "quota": "rule", "requests": "rule", "max_requests": "rule",
	"by": "key", "per": "key", "identifier": "key", "path": "match", "method": "match", "not": "match",
	"concurrency": "in_flight", "max_concurrent": "in_flight", "connections": "in_flight", "limit_conn": "in_flight", "queue": "max_waiting", "wait": "max_wait", "delay": "max_wait",
	"bypass": "exempt", "whitelist": "exempt", "allowlist": "exempt", "allow": "exempt", "skip": "exempt", "ignore": "exempt", "except": "exempt",
	"dry_run": "shadow", "log_only": "shadow", "report_only": "shadow", "monitor": "shadow", "weight": "cost", "points": "cost",
	"dedupe": "prevent_duplicates", "deduplicate": "prevent_duplicates", "idempotency": "prevent_duplicates", "max_body_size": "max_body",
	"database": "db", "master": "sentinel", "sentinel_master": "sentinel", "ca_file": "ca", "ca_cert": "ca", "cacert": "ca", "cert_file": "cert", "key_file": "key",
	"redis": "store", "fallback": "on_failure", "prefix": "key_prefix",
}

// Want says what to write in place of a word that is none of the names.
func Want(word string, names []string) string {
	if name := Nearest(word, names); name != "" {
		return "did you mean " + name
	}
	if len(names) == 0 {
		return "want none"
	}
	return "want " + Or(slices.Sorted(slices.Values(names)))
}

// mostNames is how many names an error lists.
const mostNames = 20

// None says of a name that none of some things has, which names they have.
func None(word string, names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	text := "there is none of this name"
	if len(names) == 0 {
		return text + ", and no other"
	}
	if name := Nearest(word, names); name != "" {
		text += ": did you mean " + name
	}
	if more := len(names) - mostNames; more > 0 {
		names = append(names[:mostNames:mostNames], fmt.Sprintf("%d more", more))
	}
	return text + "; there are " + And(names)
}

// place is a place of a configuration that has words of its own.
type place struct {
	name string
	has  func(word string) bool
}

var places = []place{{"a document of rules", func(word string) bool { return word == "enabled" || word == "exceptions" || word == "overrides" }}}

// AddPlace adds a place, so that errors about its words in other places name it.
func AddPlace(name string, has func(word string) bool) {
	places = append(places, place{name, has})
}

// elsewhere says where a word belongs, if it can in one of the places within; empty: nowhere.
func elsewhere(word string, within []string) string {
	var names, inside []string
	for _, p := range places {
		if !p.has(word) {
			continue
		}
		names = append(names, p.name)
		if slices.Contains(within, p.name) {
			inside = append(inside, p.name)
		}
	}
	if len(inside) > 0 {
		names = inside
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "it belongs in " + Or(slices.Compact(names))
}

// Modules returns the names of the Caddy modules that are registered in a namespace: what an option with
// the name of one may be.
func Modules(namespace string) []string {
	var names []string
	for _, m := range caddy.GetModules(namespace) {
		names = append(names, m.ID.Name())
	}
	return names
}
