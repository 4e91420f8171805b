package config

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/key"
)

// LimitFrom is the limit_from of a rule, parsed.
type LimitFrom struct {
	template key.Template
	window   Window
}

// parseLimitFrom parses the limit_from of a rule; nil: it has none.
func parseLimitFrom(r *Rule) (*LimitFrom, error) {
	if r.LimitFrom == "" {
		return nil, nil
	}
	t, err := key.Parse(Expand(r.LimitFrom))
	if err != nil {
		return nil, fmt.Errorf("limit_from: %w", err)
	}
	if _, constant := t.Constant(); constant {
		return nil, fmt.Errorf("limit_from %q: want a placeholder, such as {http.auth.user.limit}", r.LimitFrom)
	}
	if !t.MayBeNumber() {
		return nil, fmt.Errorf("limit_from %q: text beside a placeholder is never a number: want only the placeholder", r.LimitFrom)
	}
	if t.ReadsBody() {
		return nil, fmt.Errorf("limit_from %s: clients write the body: want a placeholder that they cannot set, such as {http.auth.user.limit}", r.LimitFrom)
	}
	if r.Limit < 1 {
		return nil, fmt.Errorf("limit %d beside limit_from: want at least 1, for requests that bring no limit", r.Limit)
	}
	return &LimitFrom{t, r.Window}, nil
}

// Uses reports whether a placeholder's name begins with prefix.
func (l *LimitFrom) Uses(prefix string) bool { return l.template.Uses(prefix) }

// maxLimitText is the size of the longest limit of a request, in bytes.
const maxLimitText = 64

// Limit returns the limit that a request brings: a whole number, or a rate with the rule's
// window. It returns false if it brings none.
func (l *LimitFrom) Limit(r *http.Request) (limit int64, ok bool) {
	text := l.template.Text(r)
	if text == "" || len(text) > maxLimitText {
		return 0, false
	}
	if text[0] >= '0' && text[0] <= '9' { // no sign
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, true
		}
	}
	if !strings.Contains(text, "/") {
		return 0, false
	}
	limit, window, err := ParseRate(text)
	return limit, err == nil && window == l.window
}

// checkVaries checks that the limit of a rule may change from request to request.
func checkVaries(alg algorithms.Algorithm, rule algorithms.Rule, sp algorithms.Spec) error {
	if _, grows := rule.(algorithms.Growing); grows {
		return fmt.Errorf("limit_from with %s, whose memory grows with the limit: want another algorithm, such as sliding_window", nameOf(alg))
	}
	if _, dated := rule.(algorithms.Dated); dated {
		return fmt.Errorf("limit_from with %s: want another algorithm, such as sliding_window", nameOf(alg))
	}
	if d, ok := alg.(delayer); ok {
		more := sp
		more.Limit = sp.Limit + 1
		less := sp
		less.Limit = max(1, sp.Limit/2)
		if wait := d.MaxDelay(sp); d.MaxDelay(more) != wait || d.MaxDelay(less) != wait {
			return errors.New("limit_from with a queue whose wait depends on the limit: want max_wait")
		}
	}
	return nil
}

// nameOf returns the name of an algorithm.
func nameOf(alg algorithms.Algorithm) string {
	return strings.TrimPrefix(string(alg.CaddyModule().ID), algorithms.Namespace+".")
}
