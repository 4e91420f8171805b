// Package sources are the sources of rules that Diana brings: Redis, HTTP and a file.
package sources

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/rules"
)

const defaultInterval = 30 * time.Second

var errNothing = errors.New("an empty document: want one such as {\"zones\": {}}")

// limited reads a document. It stops reading one that is too large.
func limited(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, rules.MaxSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > rules.MaxSize:
		return nil, rules.ErrTooLarge
	case len(text) == 0:
		return nil, errNothing
	}
	return text, nil
}

// interval returns the interval of a source, by default 30s.
func interval(d caddy.Duration) time.Duration { return cmp.Or(time.Duration(d), defaultInterval) }

func checkInterval(d caddy.Duration) error {
	if d != 0 && time.Duration(d) < time.Second {
		return fmt.Errorf("interval %v: want at least 1s", time.Duration(d))
	}
	return nil
}
