package test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// TestPricesByModel takes from map what requests cost, and what they hold, by the model in their body.
func TestPricesByModel(t *testing.T) {
	const byModel = "key {body.model}\nkey_missing deny\n"
	for options, want := range map[string]int{
		byModel + "cost {price}":                                 30,
		byModel + "settle {price}*{response.body.images}":        60,
		byModel + "settle 2*{price}":                             60,
		byModel + "cost {price}\nsettle {response.body.n}\nhold": 30,
		"key {header.X-Key}\ntokens {\nreserve {price}\n}":       30,
	} {
		t.Run(options, func(t *testing.T) {
			s := serve(t, setup{site: `
				map {http.request.body.model} {price} {
					large 30
					default 5
				}
				rate_limit {
					zone z {
						` + options + `
						rule 1000/1h
					}
				}
				` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
				answering("application/json", `{"images":2}`)(w, r)
				return nil
			})})
			s.want(asking("large", `{"model":"large"}`), 200)
			ended(t)
			if n := used(s, "large"); n != want {
				t.Errorf("%d charged, want %d", n, want)
			}
		})
	}
}

// TestTokensPrices charges tokens by the price that map has for the model in the request's body. A
// model without a price costs what was held.
func TestTokensPrices(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			map {http.request.body.model} {input} {output} {
				small 1 2
				~^large-.* 10 30
			}
			rate_limit {
				zone z {
					key {header.X-Key}
					tokens {
						input {input}
						output {output}
						reserve 7
					}
					rule 1000/1h
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return err
			}
			answering("application/json", usages["openai"][0].body)(w, r)
			return nil
		})})
		for body, want := range map[string]int{
			`{"model":"small"}`:                   10 + 2*5,
			`{"model":"large-2"}`:                 10*10 + 30*5,
			`{"mod\u0065l":"large-2"}`:            10*10 + 30*5,
			`{"model":"unknown"}`:                 7,
			`{"model":"large-2","model":"small"}`: 7, // which of both is up to the upstream
			`{}`:                                  7,
		} {
			s.want(asking(body, body), 200)
			ended(t)
			if n := used(s, body); n != want {
				t.Errorf("%s: %d charged, want %d", body, n, want)
			}
		}
	})
}

// TestPricesOfUnreadBodies sends bodies whose model is not read: map has its default, and one line tells why. A body
// that says no model is told of by nobody.
func TestPricesOfUnreadBodies(t *testing.T) {
	large := `{"model":"small","p":"` + strings.Repeat("x ", 1<<15) + `"}`
	for name, c := range map[string]struct {
		q      req
		reason string
	}{
		"long":      {asking("k", large), "max_body"},
		"encoded":   {asking("k", `{"model":"small"}`), "Content-Encoding"},
		"multipart": {asking("k", `{"model":"small"}`), "Content-Type"},
		"other":     {asking("k", `{"model":"other"}`), ""},
		"small":     {asking("k", `{"model":"small"}`), ""},
	} {
		zone, held := newName("prices"), int64(0)
		var s *site
		switch name {
		case "encoded":
			c.q.header["Content-Encoding"] = "gzip"
		case "multipart":
			c.q.header["Content-Type"] = "multipart/form-data; boundary=x"
		}
		s = serve(t, setup{site: `
			map {http.request.body.model} {price} {
				small 2
				default 7
			}
			rate_limit {
				zone ` + zone + ` {
					key {header.X-Key}
					tokens {
						reserve {price}
					}
					rule 1000/1h
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			held = 1000 - s.key("GET", zone, "k").Rules[0].Remaining
			_, err := io.Copy(io.Discard, r.Body)
			return err
		})})
		price := int64(7)
		if name == "small" {
			price = 2
		}
		if s.want(c.q, 200); held != price {
			t.Errorf("%s: %d held, want %d", name, held, price)
		}
		s.want(c.q, 200)
		ended(t)
		lines := s.log.lines(t, "a cost may be wrong: it depends on a field of a body that was not read")
		if told := len(lines) > 0; told != (c.reason != "") || len(lines) > 1 || told && !strings.Contains(lines[0]["reason"].(string), c.reason) {
			t.Errorf("%s: %v in the log, want one line with %q", name, lines, c.reason)
		}
	}
}

// TestTokensTiers charges tokens by weights that depend on the length of the input, cached one included, and holds by
// those of the length that is guessed.
func TestTokensTiers(t *testing.T) {
	var held int64
	var usage string
	var s *site
	s = serve(t, setup{site: `
		map {http.request.body.model} {long} {
			default 3
		}
		rate_limit {
			zone tiers {
				key {header.X-Key}
				tokens {
					input 1000000
					cached 0 above 10 1 above 20 2
					output 1 above 20 {long}
				}
				rule 1000000000000/1h
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		held = 1_000_000_000_000 - s.key("GET", "tiers", r.Header.Get("X-Key")).Rules[0].Remaining
		answering("application/json", usage)(w, r)
		return nil
	})})
	for _, c := range []struct {
		body, usage   string
		held, charged int64
	}{
		{`{"max_tokens":5}`, `{"prompt_tokens":10,"cached_tokens":4,"completion_tokens":5}`, 4_000_005, 6_000_005},
		{`{"max_tokens":5}`, `{"prompt_tokens":20,"cached_tokens":4,"completion_tokens":5}`, 4_000_005, 16_000_009},
		{`{"max_tokens":5}`, `{"prompt_tokens":21,"cached_tokens":4,"completion_tokens":5}`, 4_000_005, 17_000_023},
		{`{"max_tokens":5,"p":"` + strings.Repeat("x ", 50) + `"}`, `{"prompt_tokens":1,"completion_tokens":1}`, 31_000_015, 1_000_001},
	} {
		usage = `{"usage":` + c.usage + `}`
		key := c.usage + c.body
		s.want(asking(key, c.body), 200)
		ended(t)
		if n := s.key("GET", "tiers", key).Rules[0].Used; n != c.charged || held != c.held {
			t.Errorf("%s: %d held and %d charged, want %d and %d", c.usage, held, n, c.held, c.charged)
		}
	}
}

// TestTokensWrongTiers loads weights in tiers that are none.
func TestTokensWrongTiers(t *testing.T) {
	for weight, want := range map[string]string{
		"1 above 5":             "such as 1.25 above 200000 2.5",
		"1 beyond 5 2":          "such as 1.25 above 200000 2.5",
		"1 above 1.5 2":         "such as 1.25 above 200000 2.5",
		"1 above 5 2 above 5 3": "such as 1.25 above 200000 2.5",
		"1 above 5 x":           "seven digits",
		"10000000":              "seven digits",
		"1 above 5 2 above 6 3": "",
	} {
		err := newSite(t).load(setup{site: "rate_limit {\nzone z {\ntokens {\noutput " + weight + "\n}\nrule 100/1m\n}\n}"})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("output %s: %v, want %q", weight, err, want)
		}
	}
}

// randomBytes returns bytes as those of a file that is compressed, the same each time.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// TestTokensReserveAndBound compares what is held beside a reserve: what a request bounds its output to, if that
// is more, by its weight. What a rule never admits is denied.
func TestTokensReserveAndBound(t *testing.T) {
	var during int
	var s *site
	s = serve(t, setup{site: `
		map {http.request.body.model} {price} {
			large 4
		}
		rate_limit {
			zone z {
				key {header.X-Key}
				tokens {
					output {price}
					reserve 100
				}
				rule 1000/1h
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		during = used(s, r.Header.Get("X-Key"))
		answering("application/json", usages["openai"][0].body)(w, r)
		return nil
	})})
	for body, held := range map[string]int{
		`{"model":"large"}`:                                            100,
		`{"model":"large","max_tokens":20}`:                            100,
		`{"model":"large","max_tokens":50}`:                            200,
		`{"model":"large","max_tokens":50,"n":3}`:                      600,
		`{"model":"large","generationConfig":{"maxOutputTokens":250}}`: 1000,
		`{"model":"unknown","max_tokens":50}`:                          100,
		`{"model":"large","max_tokens":251}`:                           0,
		`{"model":"large","max_completion_tokens":10001}`:              0,
	} {
		during = 0
		want := 200
		if held == 0 {
			want = 429
		}
		if s.want(asking(body, body), want); during != held {
			t.Errorf("%s: %d held, want %d", body, during, held)
		}
	}
}
