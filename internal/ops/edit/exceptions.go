package edit

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// except blocks a key, <part>... <time>, allows it, <part>... [<rate> ...] [<time>], or ends its
// exception, <part>... An exception replaces the key's earlier one. Exceptions that have ended are
// removed.
func except(own object, z *Zone, e Edit, now time.Time) error {
	if len(e.Words) < z.Parts {
		return fmt.Errorf("%s: the key of the zone has %d parts, %d given", e.Do, z.Parts, len(e.Words))
	}
	key, rest := e.Words[:z.Parts], e.Words[z.Parts:]
	before, _ := own["exceptions"].([]any)
	list := slices.DeleteFunc(slices.Clone(before), func(x any) bool { return isOver(x, now) || isFor(x, key) })
	if e.Do == "unblock" {
		switch {
		case len(rest) > 0:
			return fmt.Errorf("unblock: %q behind the key, which has %d parts", rest, z.Parts)
		case !slices.ContainsFunc(before, func(x any) bool { return isFor(x, key) }):
			return fmt.Errorf("unblock: there is no exception for %s; a block that a rule started ends with: caddy rate-limit reset %s", strings.Join(key, " "), inShell(append([]string{e.Zone}, key...)))
		}
	} else {
		x, err := exception(z, e, now)
		if err != nil {
			return err
		}
		list = append(list, x)
	}
	if own["exceptions"] = list; len(list) == 0 {
		delete(own, "exceptions")
	}
	return nil
}

// exception returns the exception for a key, which the words begin with.
func exception(z *Zone, e Edit, now time.Time) (object, error) {
	do, key, words := e.Do, e.Words[:z.Parts], e.Words[z.Parts:]
	x := object{"key": key}
	for name, said := range map[string]string{"who": e.Who, "why": e.Why} {
		if said != "" {
			x[name] = said
		}
	}
	if until, n, lasts := Ending(words, now); n > 0 {
		if !lasts && !e.Until.IsZero() {
			until = e.Until
		}
		if !until.After(now) {
			return nil, fmt.Errorf("%s: %s is past", do, strings.Join(words[len(words)-n:], " "))
		}
		x["until"] = until.UTC().Truncate(time.Second).Format(time.RFC3339)
		words = words[:len(words)-n]
	}
	switch {
	case do == "block" && (len(words) > 0 || x["until"] == nil):
		return nil, fmt.Errorf("block: %q: want %s behind the %d parts of the key", words, aTime, z.Parts)
	case do == "block":
		x["rules"] = []any{object{"name": "blocked", "limit": 0, "window": "1s"}}
	case len(words) == 0:
		x["unlimited"] = true
	default:
		list, err := rulesOf(object{}, z)
		if err != nil {
			return nil, err
		}
		rule, algorithm := object{}, ""
		if len(list) == 1 { // of the same kind, so that what is used stays
			rule, _ = list[0].(object)
			algorithm = z.Rules[0].Algorithm
		}
		if err := setRule(rule, algorithm, words); err != nil {
			return nil, fmt.Errorf("%w, and at the end %s", err, aTime)
		}
		x["rules"] = []any{rule}
	}
	return x, nil
}

// isOver reports whether an exception has ended.
func isOver(x any, now time.Time) bool {
	o, _ := x.(object)
	text, _ := o["until"].(string)
	until, err := time.Parse(time.RFC3339, text)
	return err == nil && !now.Before(until)
}

// isFor reports whether an exception is for a key.
func isFor(x any, key []string) bool {
	o, _ := x.(object)
	parts, _ := o["key"].([]any)
	return slices.EqualFunc(parts, key, func(a any, b string) bool { return a == b })
}

// inShell returns words as a shell reads them.
func inShell(words []string) string {
	list := make([]string, len(words))
	for i, w := range words {
		if list[i] = w; w == "" || strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@") != "" {
			list[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}
