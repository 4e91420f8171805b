package test

import (
	"io"
	"net/http"
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
