package config

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Respond is how a denied request is answered.
type Respond struct {
	// The status, 400 to 599 or 200. Default: 429.
	Status int `json:"status,omitempty"`

	// The body, in which placeholders are replaced.
	Body string `json:"body,omitempty"`

	// Answer with a problem detail (RFC 9457) instead of the body. Default: false.
	Problem bool `json:"problem,omitempty"`

	// Headers to set on the answer, in whose values placeholders are replaced.
	Headers map[string][]string `json:"headers,omitempty"`
}

// Check checks the status, the body and the headers. Nil is right: the default.
func (c *Respond) Check() error {
	if c == nil {
		return nil
	}
	if !isRejection(c.Status) {
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
	return nil
}

// CheckRejectStatus checks a handler's reject_status. 0 is the default.
func CheckRejectStatus(status int) error {
	if !isRejection(status) {
		return fmt.Errorf("reject_status %d: want 400 to 599, or 200", status)
	}
	return nil
}

func isRejection(status int) bool {
	return status == 0 || status == http.StatusOK || status >= 400 && status <= 599
}

func validHeader(name string) bool {
	return name != "" && strings.Trim(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
