package cli

import (
	"fmt"
	"io"
	"strings"
)

// printExplanation prints why a request would be admitted or denied, in sentences.
func printExplanation(w io.Writer, e *Explanation) error {
	switch {
	case e.Zone != "":
		fmt.Fprintf(w, "denied by zone %s, rule %s", safe(e.Zone), safe(e.Rule))
		if e.RetryIn != nil {
			fmt.Fprintf(w, ", again in %s", span(*e.RetryIn))
		}
		fmt.Fprintln(w)
	case e.Decision == "none":
		fmt.Fprintln(w, "no rate limit applies")
	default:
		fmt.Fprintln(w, e.Decision)
	}
	for i := range e.Handlers {
		e.Handlers[i].print(w)
	}
	return nil
}

func (h *Handler) print(w io.Writer) {
	fmt.Fprintf(w, "\nOn server %s:\n", safe(h.Server))
	for i := range h.Zones {
		h.Zones[i].explain(w)
	}
	if len(h.Zones) == 0 && h.Error == "" {
		fmt.Fprintln(w, "- No zone of this handler matches the request.")
	}
	if len(h.Without) > 0 {
		fmt.Fprintf(w, "- Not matching: %s.\n", strings.ReplaceAll(safeAll(h.Without), " ", ", "))
	}
	if len(h.NotRun) > 0 {
		fmt.Fprintf(w, "- Not run before it, as they need more than the request: %s. What they would change is unknown.\n", strings.ReplaceAll(safeAll(h.NotRun), " ", ", "))
	}
	if h.Error != "" {
		fmt.Fprintf(w, "- A matcher failed, and the zones after it were not looked at: %s.\n", safe(h.Error))
	}
}

// explain prints what a zone would decide, and why.
func (s *Key) explain(w io.Writer) {
	fmt.Fprintf(w, "- Zone %s matches. %s", safe(s.Zone), s.counts())
	if len(s.Override) > 0 {
		fmt.Fprintf(w, " The override for %s applies.", safeAll(s.Override))
	}
	fmt.Fprintln(w, s.why())
	for i := range s.Rules {
		fmt.Fprintf(w, "    %s\n", s.Rules[i].sentence(s.Cost))
	}
	if note := s.modeNote(); note != "" {
		fmt.Fprintf(w, "    %s\n", note)
	}
}

// counts says under which key the zone counts the request.
func (s *Key) counts() string {
	empty := "is empty"
	if len(s.Missing) > 1 {
		empty = "are empty"
	}
	why := fmt.Sprintf("because %s %s (key_missing %s)", joined(s.Missing, " and "), empty, s.KeyMissing)
	switch s.KeyMissing {
	case "skip":
		return "It does not count this request, " + why + "."
	case "deny":
		return "This request has no key for it, " + why + "."
	case "share":
		return fmt.Sprintf("It counts this request under the key %s, with all others that lack the same, %s.", quotedEmpty(s.Parts), why)
	case "client_ip":
		under := "the client's address " + s.Address
		if s.Address == "" {
			under = "one key for all clients whose address is unknown"
		}
		text := fmt.Sprintf("It counts this request under %s, %s", under, why)
		if s.Key != "" {
			text += fmt.Sprintf("; look at it with caddy rate-limit key %s --hash %s", safe(s.Zone), s.Key)
		}
		return text + "."
	}
	if s.Rule == "key_repeated" {
		return "A part of its key stands more than once in this request."
	}
	return fmt.Sprintf("It counts this request under the key %s.", safeAll(s.Parts))
}

// quotedEmpty returns the parts of a key, an empty one as "".
func quotedEmpty(parts []string) string {
	words := make([]string, len(parts))
	for i, s := range parts {
		if words[i] = safe(s); s == "" {
			words[i] = `""`
		}
	}
	return strings.Join(words, " ")
}

// why returns the decision of the zone as a sentence, with a space in front.
func (s *Key) why() string {
	switch s.Decision {
	case "skipped":
		if len(s.Override) > 0 {
			return " It is unlimited."
		}
		if s.KeyMissing == "skip" {
			return " It passes."
		}
		return " It passes uncounted: the zone is off, or the request is exempt, or its key is unlimited."
	case "allowed":
		return " It would pass."
	case "denied":
		if s.Blocked > 0 {
			return fmt.Sprintf(" Rule %s has blocked the key: requests pass again in %s.", safe(s.Rule), span(s.Blocked))
		}
		if s.RetryIn == nil {
			return fmt.Sprintf(" It would be denied by rule %s, and not pass later either.", safe(s.Rule))
		}
		return fmt.Sprintf(" It would be denied by rule %s, and pass in %s.", safe(s.Rule), span(*s.RetryIn))
	case "shadow_denied":
		return fmt.Sprintf(" Rule %s would deny it, but the zone is in shadow: it passes, and the denial is only reported.", safe(s.Rule))
	}
	return " Decision: " + s.Decision + "."
}

// sentence says what is left of a rule.
func (r *KeyRule) sentence(cost int64) string {
	limit := fmt.Sprintf("Rule %s, %d in %s", safe(r.Name), r.Limit, windowText(r.Window, r.Period))
	left := fmt.Sprintf("%d left", r.Remaining)
	if r.Reset > 0 {
		left += fmt.Sprintf(", all of it in %s", span(r.Reset))
	}
	switch {
	case r.Admits:
		return fmt.Sprintf("%s: %s. It admits the request.", limit, left)
	case r.RetryIn == nil:
		return fmt.Sprintf("%s: %s. A request of cost %d is more than it ever admits.", limit, left, cost)
	}
	return fmt.Sprintf("%s: %s. The request needs %d, which will be there in %s.", limit, left, cost, span(*r.RetryIn))
}

// modeNote says where the zone was decided, unless it is where it should be.
func (s *Key) modeNote() string {
	switch {
	case s.Overflowed:
		return "The zone is full of keys, and this one shares a counter with others: raise max_keys."
	case s.Mode == "fallback":
		return "The store is away: the instance decides locally, by these limits."
	case s.Mode == "allow":
		return "The store is away, and on_failure allow lets requests pass uncounted."
	case s.Mode == "deny":
		return "The store is away, and on_failure deny answers 503."
	}
	return ""
}
