package option

import (
	"fmt"
	"strings"
)

// mostErrors is how many errors of a configuration are shown.
const mostErrors = 20

// Errors are the errors of a configuration, which are reported together.
type Errors []error

// Reported is the option of an adaptation that collects the errors of all directives: a *[Errors].
// Without it Caddy ends at the first directive with errors.
const Reported = "rate_limit.errors"

// Error implements error. Of equal errors, as a snippet that is imported twice has, it
// shows one.
func (e Errors) Error() string {
	var texts []string
	seen := make(map[string]bool)
	for _, err := range e {
		if text := err.Error(); !seen[text] {
			seen[text] = true
			texts = append(texts, text)
		}
	}
	if len(texts) == 1 {
		return texts[0]
	}
	title := fmt.Sprintf("%d errors:", len(texts))
	if more := len(texts) - mostErrors; more > 0 {
		texts = append(texts[:mostErrors], fmt.Sprintf("and %d more", more))
	}
	return title + "\n\t" + strings.Join(texts, "\n\t")
}

// Unwrap returns the errors.
func (e Errors) Unwrap() []error { return e }

// Join returns the errors that are not nil as one, of type [Errors] if there are several; nil: there
// are none.
func Join(errs ...error) error {
	var all Errors
	for _, err := range errs {
		if several, ok := err.(Errors); ok { //nolint:errorlint // what wraps several says more than they do
			all = append(all, several...)
		} else if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

// Each applies f to an error or, if it is several, to each of them, and joins the results.
func Each(err error, f func(error) error) error {
	several, ok := err.(Errors) //nolint:errorlint // see Join
	if !ok && err != nil {
		return f(err)
	}
	var all Errors
	for _, err := range several {
		all = append(all, f(err))
	}
	return Join(all...)
}
