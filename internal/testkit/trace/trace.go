// Package trace parses requests with their expected responses, from documentation and
// from comments in configurations, and runs them against a server:
//
//	GET /orders X-Account=7 from=203.0.113.9  => 200*3 429 retry=60
//	POST /pay body=amount=5 host=example.com  => 200 429 "has=too many"
//	together GET /slow                        => 200*2 429*3
//	GET /orders                               => until 200
//
// A line is a request, which is sent once for each status after the arrow. Before the
// arrow are headers, and from (the address forwarded by a trusted proxy), host, body,
// basic (user:password) and upgrade. After it are the statuses and the properties of
// the last response: retry=60 (a Retry-After of at most 60 seconds and at most 10
// less), retry=none, has=<text in the body>, took=2s (the minimum duration of all
// requests), and headers. "together" sends all requests concurrently and ignores the
// order of statuses. "until" repeats the request until the status is returned. A word
// with spaces is quoted as a whole.
package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Step is one line of a trace.
type Step struct {
	Text     string            // source line
	Method   string            // upper case
	Target   string            // path and query
	Header   map[string]string // of the request
	From     string            // X-Forwarded-For; empty: none
	Host     string            // empty: the site's host
	Body     string            // empty: none
	User     string            // of basic authentication; empty: none
	Password string            // for User
	Together bool              // concurrent requests, statuses in any order
	Until    bool              // repeat until Statuses[0] is returned
	Statuses []int             // one per request
	Last     map[string]string // headers of the last response
	Retry    string            // maximum seconds, "none", or "" for any
	Has      []string          // texts in the last response's body
	Took     time.Duration     // minimum duration of all requests
}

// Parse parses a trace.
func Parse(text string) (steps []Step, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, err := parseStep(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func parseStep(line string) (s Step, err error) {
	tokens, err := caddyfile.Tokenize([]byte(line), "trace")
	if err != nil {
		return s, err
	}
	words := make([]string, len(tokens))
	for i, t := range tokens {
		words[i] = t.Text
	}
	s = Step{Text: line, Header: make(map[string]string), Last: make(map[string]string)}
	if len(words) > 0 && words[0] == "together" {
		s.Together, words = true, words[1:]
	}
	if len(words) < 4 {
		return s, fmt.Errorf("want <method> <target> => <status>")
	}
	s.Method, s.Target, words = words[0], words[1], words[2:]
	for ; len(words) > 0 && words[0] != "=>"; words = words[1:] {
		if err := s.parseRequestWord(words[0]); err != nil {
			return s, err
		}
	}
	for _, w := range words[min(1, len(words)):] {
		if err := s.expect(w); err != nil {
			return s, err
		}
	}
	if len(s.Statuses) == 0 || s.Until && len(s.Statuses) > 1 {
		return s, fmt.Errorf("want a status after =>, one after until")
	}
	return s, nil
}

func (s *Step) parseRequestWord(word string) error {
	name, value, ok := strings.Cut(word, "=")
	switch {
	case word == "upgrade":
		s.Header["Connection"], s.Header["Upgrade"] = "Upgrade", "websocket"
	case !ok:
		return fmt.Errorf("%q: want <header>=<value>", word)
	case name == "from":
		s.From = value
	case name == "host":
		s.Host = value
	case name == "body":
		s.Body = value
	case name == "basic":
		s.User, s.Password, _ = strings.Cut(value, ":")
	default:
		s.Header[name] = value
	}
	return nil
}

func (s *Step) expect(word string) (err error) {
	name, value, ok := strings.Cut(word, "=")
	switch {
	case word == "until":
		s.Until = true
	case !ok:
		status, times, many := strings.Cut(word, "*")
		n := 1
		if many {
			if n, err = strconv.Atoi(times); err != nil {
				return err
			}
		}
		code, err := strconv.Atoi(status)
		if err != nil || code < 100 || code > 599 {
			return fmt.Errorf("%q: want a status, such as 200 or 200*3", word)
		}
		for range n {
			s.Statuses = append(s.Statuses, code)
		}
	case name == "retry":
		s.Retry = value
	case name == "has":
		s.Has = append(s.Has, value)
	case name == "took":
		s.Took, err = time.ParseDuration(value)
	default:
		s.Last[name] = value
	}
	return err
}
