package test

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAskedBeyond asks for more than a rule ever admits: it is denied by that rule at once, without a
// wait and without a block, and what fits is admitted.
func TestAskedBeyond(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone ` + newName("shadow") + ` {
					tokens
					rule 10/1m
					shadow
				}
				zone ` + newName("asked") + ` {
					key {header.X-Key}
					tokens
					rule 100000/1h name hour
					rule 2000/1m name minute block 1h
				}
				zone ` + newName("cost") + ` {
					key {header.X-Key}
					cost {header.X-Cost}
					settle {response.body.n}
					hold
					rule 50/1m
				}
				headers openai
			}
			handle_errors {
				respond "{http.rate_limit.exceeded.rule}" {err.status_code}
			}
			respond "{}"`})
		for _, body := range []string{
			`{"max_tokens":10000}`, `{"max_completion_tokens":2001}`, `{"max_output_tokens":2001}`, `{"options":{"num_predict":2001}}`,
			`{"generationConfig":{"maxOutputTokens":1001,"candidateCount":2}}`, `{"max_tokens":1001,"n":2}`,
			`{"inferenceConfig":{"maxTokens":2001}}`, `{"n_predict":2001}`, `{"max_tokens":1001,"best_of":2}`, `{"max_tokens":2.001e3}`, `{"max_tokens":"2001"}`,
			`{"generation_config":{"max_output_tokens":1001,"candidate_count":2}}`, `{"generationConfig":{"max_output_tokens":2001}}`,
		} {
			q := asking("a", body)
			q.header["X-Cost"] = "1"
			a := s.send(q)
			if a.status != 429 || a.body != "minute" || a.get("Retry-After") != "" || a.get("X-Should-Retry") != "false" || a.get("Retry-After-Ms") != "" {
				t.Errorf("%s: %d, %q %v, want 429 by minute without a wait", body, a.status, a.body, a.header)
			}
			q.header["Content-Type"] = "text/plain" // whatever it says of itself
			s.want(q, 429)
		}
		q := asking("a", `{"max_tokens":2000}`)
		q.header["X-Cost"] = "51"
		if a := s.send(q); a.status != 429 || a.body != "1" || a.get("Retry-After") != "" {
			t.Errorf("a cost of 51: %d, %q, %v, want 429", a.status, a.body, a.header)
		}
		q.header["X-Cost"] = "50"
		s.want(q, 200)
	})
}

// TestReserveBeyond loads a reserve above the capacity of a rule.
func TestReserveBeyond(t *testing.T) {
	for rules, loads := range map[string]bool{
		"rule 2000/1m": true, "rule 1999/1m": false, "rule 5000/1m\nrule 1999/1h": false, "rule 1000/1m token_bucket burst 2000": true,
		"rule 5000/1m\noverride a {\nrule 1999/1m\n}": false,
	} {
		err := newSite(t).load(setup{site: "rate_limit {\nzone z {\nkey {header.X-Key}\ntokens {\nreserve 2000\n}\n" + rules + "\n}\n}"})
		if (err == nil) != loads || err != nil && !strings.Contains(err.Error(), "reserve 2000: want at most 1999") {
			t.Errorf("%s: %v, want an error: %v", rules, err, !loads)
		}
	}
}

// TestUntoldInput sends prompts of 400 KB, with and without a length, under any type: of a response
// that does not tell its usage, a token of the input is charged for four bytes, or for 256 of base64.
func TestUntoldInput(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", eventStream)
		_, _ = io.WriteString(w, streamedEvent)
	}))
	up.Start()
	defer up.Close()
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				key {header.X-Key}
				tokens {
					output 0
				}
				rule 1000000/1h
			}
		}
		reverse_proxy ` + up.Listener.Addr().String()})
	prompt := `{"stream":true,"messages":[{"content":"` + strings.Repeat("two words ", 40_000) + `"}]}`
	encoded := base64.StdEncoding.EncodeToString(randomBytes(300_000))
	image := `{"images":["` + encoded + `"]}`
	for name, c := range map[string]struct {
		body          string
		header, value string
		least, most   int
	}{
		"JSON":         {prompt, "", "", 100_000, 100_020},
		"identity":     {prompt, "Content-Encoding", "identity", 100_000, 100_020},
		"upgrade":      {prompt, "Upgrade", "x", 100_000, 100_020},
		"text":         {prompt, "Content-Type", "text/plain", 100_000, 100_020},
		"charset":      {prompt, "Content-Type", "application/json; charset=latin1", 100_000, 100_020},
		"an image":     {image, "", "", 1560, 1580},
		"its letters":  {`{"messages":["` + encoded + `"]}`, "", "", 100_000, 100_020},
		"words":        {`{"data":"` + strings.Repeat("two+words/", 40_000) + `"}`, "", "", 100_000, 100_020},
		"short base64": {strings.Repeat(strings.Repeat("a", 1024)+" ", 10), "", "", 2562, 2564},
	} {
		for _, chunked := range []bool{false, true} {
			key := name
			if chunked {
				key += " chunked"
			}
			var body io.Reader = strings.NewReader(c.body)
			if chunked {
				body = io.MultiReader(body) // of unknown length
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("X-Key", key)
			if c.header != "" {
				r.Header.Set(c.header, c.value)
			}
			resp, err := s.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			ended(t)
			n := int(s.key(http.MethodGet, "z", key).Rules[0].Used)
			if n < c.least || n > c.most {
				t.Errorf("%s: %d charged, want %d to %d", key, n, c.least, c.most)
			}
		}
	}
}

// TestTooLargeBody sends a body above max_size: nothing is charged, with a length or without.
func TestTooLargeBody(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer up.Close()
	for _, options := range []string{"cost 7\nsettle {response.body.n}\nhold", "tokens", "cost 7\ncount_status 2xx", "tokens {\nreserve 5\n}"} {
		for _, order := range []string{"request_body first", "request_body last", ""} {
			order = strings.NewReplacer("request_body first", "order request_body before rate_limit", "request_body last", "order request_body after rate_limit").Replace(order)
			s := serve(t, setup{global: order, site: `
				request_body {
					max_size 100KB
				}
				rate_limit {
					zone z {
						key {header.X-Key}
						` + options + `
						rule 1000000/1h
					}
				}
				reverse_proxy ` + up.Listener.Addr().String()})
			for _, size := range []int{110_000, 3_000_000} {
				for _, chunked := range []bool{false, true} {
					var body io.Reader = bytes.NewReader(bytes.Repeat([]byte("a b "), size/4))
					if chunked {
						body = io.MultiReader(body)
					}
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, body)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("X-Key", "k")
					resp, err := s.client.Do(r)
					if err == nil {
						_ = resp.Body.Close()
					}
					if err == nil && resp.StatusCode != http.StatusRequestEntityTooLarge {
						t.Errorf("%s, %s, %d bytes, chunked %v: status %d, want 413", options, order, size, chunked, resp.StatusCode)
					}
					ended(t)
					if k := s.key(http.MethodGet, "z", "k"); k.Rules[0].Used != 0 {
						t.Errorf("%s, %s, %d bytes, chunked %v: %d charged, want 0", options, order, size, chunked, k.Rules[0].Used)
					}
				}
			}
		}
	}
}

// TestResetOfHeldTokens is denied by what a running request holds: the reset is not 0.
func TestResetOfHeldTokens(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone ` + newName("held") + ` {
					key all
					tokens {
						reserve 1000
					}
					rule 1000/1m
				}
				headers openai
			}
			` + handle(t, "*", g.ServeHTTP)})
		held := s.open(g, asking("", "{}"))
		a := s.send(asking("", "{}"))
		if d, err := time.ParseDuration(a.get("X-Ratelimit-Reset-Tokens")); a.status != 429 || err != nil || d <= 0 {
			t.Errorf("status %d, reset %q, want 429 and a time", a.status, a.get("X-Ratelimit-Reset-Tokens"))
		}
		g.goOn <- true
		<-held
		ended(t)
	})
}
