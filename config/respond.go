package config

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/key"
)

// Respond is the response to a denied request.
type Respond struct {
	// The status code, 400 to 599 or 200. Default: the handler's reject_status, or
	// 429.
	Status int `json:"status,omitempty"`

	// The response body. Placeholders are replaced. Default: empty.
	Body string `json:"body,omitempty"`

	// Respond with a problem detail (RFC 9457) instead of a body. Default: false.
	Problem bool `json:"problem,omitempty"`

	// Headers to set on the response. Placeholders in values are replaced.
	// Default: none.
	Headers map[string][]string `json:"headers,omitempty"`
}

// Check checks the status, the body and the headers. Nil is valid.
func (c *Respond) Check() error {
	if c == nil {
		return nil
	}
	if !IsRejection(c.Status) {
		return fmt.Errorf("respond %d: want 400 to 599, or 200", c.Status)
	}
	if c.Problem && c.Body != "" {
		return errors.New("respond: want a body or problem, not both")
	}
	for name := range c.Headers {
		if !validHeader(name) {
			return fmt.Errorf("respond: header %q: want a header field's name", name)
		}
	}
	return c.checkPlaceholders()
}

// checkPlaceholders rejects placeholders of a response, which a denial does not have.
func (c *Respond) checkPlaceholders() (err error) {
	repl := caddy.NewEmptyReplacer()
	repl.Map(func(name string) (any, bool) {
		if wrong := key.CheckResponse(name); wrong != nil && err == nil {
			err = fmt.Errorf("respond: %w", wrong)
		}
		return nil, false
	})
	for _, text := range slices.Concat(append(slices.Collect(maps.Values(c.Headers)), []string{c.Body})...) {
		repl.ReplaceKnown(text, "")
	}
	return err
}

// IsRejection reports whether a response may have the status. 0 means the default.
func IsRejection(status int) bool {
	return status == 0 || status == http.StatusOK || status >= 400 && status <= 599
}

func validHeader(name string) bool {
	return name != "" && strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
