package test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestOpenAIError compares the bodies of denials with headers openai: clients of OpenAI's API show their messages.
// What a zone's respond or an error route writes wins; one that writes none leaves it to the denial.
func TestOpenAIError(t *testing.T) {
	const (
		minute  = "rule 10/1m token_bucket"
		month   = "rule 10/month calendar name month"
		reached = "Please try again in "
	)
	for name, c := range map[string]struct {
		rule, errors, respond string
		ask                   string
		code, message         string
	}{
		"a short wait":             {minute, "", "", `{"max_tokens":7}`, "rate_limit_exceeded", reached},
		"a long wait":              {month, "", "", `{"max_tokens":7}`, "insufficient_quota", "(month). It is available again in "},
		"too large":                {minute, "", "", `{"max_tokens":11}`, "rate_limit_exceeded", "Request too large for "},
		"another error route":      {minute, "handle_errors 5xx {\nrespond mine\n}", "", `{"max_tokens":7}`, "rate_limit_exceeded", reached},
		"an error route":           {minute, "handle_errors {\nrespond mine\n}", "", `{"max_tokens":7}`, "", "mine"},
		"an error route of a type": {minute, "handle_errors {\nheader Content-Type text/plain\nrespond 429\n}", "", `{"max_tokens":7}`, "", ""},
		"an error route of none":   {minute, "handle_errors {\nheader X-Mine 1\n}", "", `{"max_tokens":7}`, "rate_limit_exceeded", reached},
		"respond":                  {minute, "", "respond 429 mine", `{"max_tokens":7}`, "", "mine"},
	} {
		zone := newName("openai")
		s := serve(t, setup{site: `
			rate_limit {
				headers openai
				zone ` + zone + ` {
					tokens
					` + c.rule + `
					` + c.respond + `
				}
			}
			respond "{\"usage\":{\"prompt_tokens\":8}}"
			` + c.errors})
		s.want(asking("", `{"max_tokens":5}`), 200)
		ended(t)
		a := s.want(asking("", c.ask), 429)
		var got struct {
			Error struct {
				Message, Type, Code string
				Param               *string
			}
		}
		err := json.Unmarshal([]byte(a.body), &got)
		if c.code == "" {
			if a.body != c.message {
				t.Errorf("%s: %q, want %q", name, a.body, c.message)
			}
			continue
		}
		e := got.Error
		if err != nil || e.Code != c.code || !strings.Contains(e.Message, c.message) || !strings.Contains(e.Message, zone) || e.Type == "" || a.get("Content-Type") != "application/json" {
			t.Errorf("%s: %q (%s), want the code %s and %q", name, a.body, a.get("Content-Type"), c.code, c.message)
		}
		if wait := a.get("Retry-After"); wait != "" && !strings.Contains(e.Message, " "+wait+"s.") {
			t.Errorf("%s: %q, want the wait of %s s", name, e.Message, wait)
		}
	}
}

// TestOpenAIErrorIsReplaced has intercept replace the body of a denial by another of another length.
func TestOpenAIErrorIsReplaced(t *testing.T) {
	s := serve(t, setup{site: `
		route {
			intercept {
				@denied status 429
				handle_response @denied {
					respond "{http.rate_limit.exceeded.name}" 429
				}
			}
			rate_limit {
				headers openai
				zone short {
					rule 1/1h
				}
			}
			respond ok
		}`})
	s.want(req{}, 200)
	if a := s.want(req{}, 429); a.body != "short" {
		t.Errorf("body %q, want that of intercept", a.body)
	}
}
