package test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

const eventStream = "text/event-stream"

// usages are responses of language models, by format. A token of the input weighs 2, one that was
// read from a cache 0.5, one that was written to one 3, and one of the output 4. Held are 7.
var usages = map[string][]struct {
	name, contentType, body string
	charge                  int
}{
	"openai": {
		{"chat", "application/json", `{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}}`, 34},
		{"reasoning that only the total has", "application/json", `{"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":20}}`, 60},
		{"embeddings", "application/json", `{"usage":{"prompt_tokens":8,"total_tokens":8}}`, 16},
		{"both names", "application/json", `{"usage":{"prompt_tokens":10,"input_tokens":99,"completion_tokens":5,"output_tokens":5}}`, 40},
		{"cached tokens under the names of two formats", "application/json", `{"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"cache_read_input_tokens":4}}`, 34},
		{"responses", "application/json", `{"usage":{"input_tokens":10,"output_tokens":5,"input_tokens_details":{"cached_tokens":4}}}`, 34},
		{"a stream", eventStream, "data: {\"choices\":[],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n", 40},
		{"usage in each event", eventStream, "data: {\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5}}\n\n: none\n\n", 40},
		{"a stream of responses", eventStream, "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":5}}}\n\n", 40},
		{"a stream without usage", eventStream, "data: {\"a\":1}\n\ndata: {\"a\":2}\n\ndata: {\"a\":3}\n\ndata: [DONE]\n\n", 20},
		{"a short stream without usage", eventStream, "data: {\"a\":1}\n\ndata: [DONE]\n\n", 12},
		{"no usage", "application/json", `{"choices":[]}`, 8}, // 15 bytes of the request
		{"in a string", "application/json", `{"text":"\"usage\":{\"prompt_tokens\":1}","usage":{"prompt_tokens":1}}`, 2},
	},
	"anthropic": {
		{"messages", "application/json", `{"usage":{"input_tokens":10,"output_tokens":5,"cache_read_input_tokens":4,"cache_creation_input_tokens":2}}`, 48},
		{"a stream of messages", eventStream, "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"usage\":{\"output_tokens\":5}}\n\nevent: message_stop\ndata: {}\n\n", 40},
	},
	"gemini": {
		{"content", "application/json", `{"usageMetadata":{"promptTokenCount":10,"toolUsePromptTokenCount":1,"cachedContentTokenCount":4,"candidatesTokenCount":3,"thoughtsTokenCount":2}}`, 36},
		{"a stream of content", eventStream, "data: {\"usageMetadata\":{\"promptTokenCount\":10}}\n\ndata: {\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":5}}\n\n", 40},
	},
	"ollama": {
		{"generate", "application/json", `{"done":true,"prompt_eval_count":10,"eval_count":5}`, 40},
		{"a stream of lines", "application/x-ndjson", "{\"done\":false}\n{\"done\":true,\"prompt_eval_count\":10,\"eval_count\":5}\n", 40},
	},
}

// TestTokens answers with the usages of language models, in every format, and compares what is
// charged.
func TestTokens(t *testing.T) {
	var contentType, body string
	onBoth(t, func(t *testing.T, b backend) {
		for _, auto := range []bool{true, false} {
			for format, list := range usages {
				option := format
				if auto {
					option = "auto"
				}
				s := serve(t, setup{app: b.app(), site: `
					rate_limit {
						zone z {
							key {header.X-Key}
							tokens ` + option + ` {
								input 2
								cached {header.X-Price}
								cache_write 3
								output 4
								reserve 7
							}
							rule 1000/1h
						}
					}
					` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
					answering(contentType, body)(w, r)
					return nil
				})})
				for i, c := range list {
					contentType, body = c.contentType, c.body
					key := fmt.Sprint(option, format, i)
					s.want(asking(key, `{"model":"m"}`), 200)
					until(t, "the charge", func() bool { return used(s, key) != 7 || c.charge == 7 })
					if n := used(s, key); n != c.charge {
						t.Errorf("tokens %s: %s: %d charged, want %d", option, c.name, n, c.charge)
					}
				}
			}
		}
	})
}

// TestTokensOfCutStreams has clients leave streams whose first event tells a token of the output, or
// nothing, and whose last one would tell all. Until then each event counts as a token, and four bytes of
// the request. An event may also be a line, or an element of an array.
func TestTokensOfCutStreams(t *testing.T) {
	const data, afterData = "data: ", "\n\n"
	for name, c := range map[string]struct {
		contentType, begin, end string
		first                   string
		input                   int
	}{
		"anthropic":    {eventStream, data, afterData, `{"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`, 10},
		"gemini":       {eventStream, data, afterData, `{"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":1}}`, 10},
		"gemini array": {"application/json", "[", ",", `{"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":1}}`, 10},
		"openai":       {eventStream, data, afterData, `{"choices":[{"delta":{"content":"a"}}]}`, 4},
		"ollama":       {"application/x-ndjson", "", "\n", `{"done":false}`, 4},
	} {
		const events = 20
		format, _, _ := strings.Cut(name, " ")
		s := serve(t, setup{site: `
			rate_limit {
				zone z {
					key {header.X-Key}
					tokens ` + format + ` {
						input 2
						output 4
						reserve 7
					}
					rule 1000/1h
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Content-Type", c.contentType)
			next := strings.TrimPrefix(c.begin, "[") + `{"text":"a"}` + c.end
			_, err := io.WriteString(w, c.begin+c.first+c.end+strings.Repeat(next, events-1))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return err
		})})
		ctx, leave := context.WithCancel(t.Context())
		q := asking(name, `{"model":"m"}`)
		q.ctx = ctx
		resp, err := once.Do(q.http(s))
		if err != nil {
			t.Fatal(err)
		}
		leave()
		_ = resp.Body.Close()
		ended(t)
		if n, want := used(s, name), c.input*2+events*4; n != want {
			t.Errorf("%s: %d charged, want %d", name, n, want)
		}
	}
}

// asking returns a request with a JSON body.
func asking(key, body string) req {
	return req{method: "POST", body: body, header: map[string]string{"X-Key": key, "X-Price": "0.5", "Content-Type": "application/json"}}
}

// TestTokensOfOtherRequests checks that what only reads is not measured, and that errors cost
// nothing. Whatever else a client says of its request, and whatever handlers make of it, its tokens
// are charged.
func TestTokensOfOtherRequests(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				key {header.X-Key}
				tokens
				rule 1000/1h
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		switch r.URL.Path {
		case "/bad":
			w.WriteHeader(http.StatusBadRequest)
			return nil
		case "/changed":
			r.Method = http.MethodGet
			r.Header.Del("Content-Type")
		}
		answering("application/json", usages["openai"][0].body)(w, r)
		return nil
	})})
	typed := func(method, path, contentType string) req {
		return req{method: method, path: path, body: `{}`, header: map[string]string{"X-Key": method + path + contentType, "Content-Type": contentType}}
	}
	for _, c := range []struct {
		req
		charge int
	}{
		{typed("GET", "/", "application/json"), 0},
		{typed("OPTIONS", "/", "application/json"), 0},
		{typed("POST", "/bad", "application/json"), 0},
		{typed("POST", "/", "application/json"), 15},
		{typed("POST", "/", ""), 15},
		{typed("POST", "/", "text/plain"), 15},
		{typed("POST", "/", "application/x-www-form-urlencoded"), 15},
		{typed("PUT", "/", "application/json"), 15},
		{typed("POST", "/changed", "application/json"), 15},
	} {
		key := c.header["X-Key"]
		s.send(c.req)
		ended(t)
		if n := used(s, key); n != c.charge {
			t.Errorf("%s %s %s: %d charged, want %d", c.method, c.path, c.header["Content-Type"], n, c.charge)
		}
	}
}

// TestTokensOfReadersThatLeave checks that a request that only reads costs nothing and is not
// reported, if its client leaves the response.
func TestTokensOfReadersThatLeave(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone z {
				key {header.X-Key}
				tokens
				rule 1000/1h
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		err := http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return err
	})})
	ctx, leave := context.WithCancel(t.Context())
	resp, err := s.client.Do(req{header: map[string]string{"X-Key": "k"}, ctx: ctx}.http(s))
	if err != nil {
		t.Fatal(err)
	}
	leave()
	_ = resp.Body.Close()
	ended(t)
	if n, unknown := used(s, "k"), s.metric("unknown_cost_total", "zone", "z"); n != 0 || unknown != 0 {
		t.Errorf("%d charged and %v unknown costs, want none", n, unknown)
	}
}

// TestTokensWithoutWeight checks that a weight without a value is told, in the metrics of costs.
func TestTokensWithoutWeight(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone unpriced {
				tokens {
					input {header.X-Price}
				}
				rule 1000/1h
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		answering("application/json", usages["openai"][0].body)(w, r)
		return nil
	})})
	bad, unknown := s.metric("bad_cost_total", "zone", "unpriced"), s.metric("unknown_cost_total", "zone", "unpriced")
	for _, price := range []string{"1", "", "free", "-1", "0"} {
		q := asking("", `{}`)
		q.header["X-Price"] = price
		s.want(q, 200)
	}
	ended(t)
	if n, m := s.metric("bad_cost_total", "zone", "unpriced")-bad, s.metric("unknown_cost_total", "zone", "unpriced")-unknown; n != 2 || m != 2 {
		t.Errorf("%v bad and %v unknown costs, want 2 and 2: an empty price, and a word", n, m)
	}
}

// TestTokensReserve compares what is held while a request runs with what it may take.
func TestTokensReserve(t *testing.T) {
	var during int
	var s *site
	s = serve(t, setup{site: `
		rate_limit {
			zone z {
				key {header.X-Key}
				tokens {
					input 2
					output 4
				}
				rule 1000/1h
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		during = used(s, r.Header.Get("X-Key"))
		answering("application/json", usages["openai"][0].body)(w, r)
		return nil
	})})
	picture := base64.StdEncoding.EncodeToString(randomBytes(1 << 15 * 3 / 4))
	pad := func(text string, size int) string {
		return strings.Replace(text, `"p":"`, `"p":"`+strings.Repeat("x", size-len(text)), 1)
	}
	for i, c := range []struct {
		body string
		held int
	}{
		{pad(`{"p":""}`, 40), 120},
		{pad(`{"p":""}`, 41), 122},
		{pad(`{"p":"","max_tokens":50}`, 40), 220},
		{pad(`{"p":"","max_tokens":50,"n":2}`, 40), 420},
		{pad(`{"p":"","max_tokens":10,"max_completion_tokens":50}`, 80), 240},
		{pad(`{"p":"","generationConfig":{"maxOutputTokens":50}}`, 80), 240},
		{pad(`{"p":"","options":{"num_predict":-1}}`, 80), 140},
		{pad(`{"p":"","n":9000000000000000000}`, 80), 140},
		{pad(`{"p":"","max_tokens":250}`, 40), 1000},
		{pad(`{"p":"","max_tokens":50,"max_tokens":60}`, 60), 130},
		{pad(`{"p":""`, 40), 120},                      // no JSON
		{`{"p":"` + strings.Repeat("x ", 1<<16), 1000}, // too large to be read
		{`{"data":"` + picture + `"}`, 2*(3+128) + 100},
		{`{"p":"` + picture + `"}`, 1000}, // text, wherever it is no picture's place
	} {
		key := fmt.Sprint("k", i)
		s.want(asking(key, c.body), 200)
		if during != c.held {
			t.Errorf("%.60s: %d held, want %d", c.body, during, c.held)
		}
	}
}

// TestTokensAskUsage sends requests of OpenAI's format, and compares the bodies that arrive.
func TestTokensAskUsage(t *testing.T) {
	const shadow, ask = "shadow", "ask_usage"
	for _, mode := range []string{ask, shadow, ""} {
		t.Run(mode, func(t *testing.T) {
			var arrived, length, inside string
			options := map[string]string{ask: "tokens openai {\nask_usage\n}", shadow: "tokens openai {\nask_usage\n}\nshadow", "": "tokens openai"}
			s := serve(t, setup{site: `
				rate_limit {
					zone z {
						key {header.X-Key}
						` + options[mode] + `
						rule 1000000/1h
					}
				}
				` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
				b, err := io.ReadAll(r.Body)
				arrived, length, inside = string(b), r.Header.Get("Content-Length"), strconv.FormatInt(r.ContentLength, 10)
				w.WriteHeader(http.StatusBadRequest)
				return err
			})})
			const asked = `{"stream_options":{"include_usage":true},"stream":true,"messages":[]}`
			large := `{"stream":true,"messages":["` + strings.Repeat("x", 1<<16) + `"]}`
			for _, c := range []struct{ body, header, want string }{
				{`{"stream":true,"messages":[]}`, "", asked},
				{` { "stream" : true , "prompt" : "a" } `, "", ` {"stream_options":{"include_usage":true}, "stream" : true , "prompt" : "a" } `},
				{`{"stream_options":null,"stream":true,"messages":[]}`, "", asked},
				{`{"stream_options": { },"stream":true,"messages":[]}`, "", `{"stream_options": {"include_usage":true },"stream":true,"messages":[]}`},
				{`{"stream_options":{"include_usage":false},"stream":true,"messages":[]}`, "", asked},
				{
					`{"a":{"stream_options":1},"stream":true,"messages":[],"stream_options":{"include_obfuscation":false}}`, "",
					`{"a":{"stream_options":1},"stream":true,"messages":[],"stream_options":{"include_usage":true,"include_obfuscation":false}}`,
				},
				{
					`{"stream_options":{"include_usage":true},"stream_options":{"include_usage":false},"stream":true,"messages":[]}`, "",
					`{"stream_options":{"include_usage":true},"stream_options":{"include_usage":true},"stream":true,"messages":[]}`,
				},
				{`{"str\u0065am":true,"messages":[]}`, "", `{"stream_options":{"include_usage":true},"str\u0065am":true,"messages":[]}`},
				// These are left as they are.
				{asked, "", ""},
				{`{"stream":false,"messages":[]}`, "", ""},
				{`{"stream":true,"stream":false,"messages":[]}`, "", ""},
				{`{"stream":"true","messages":[]}`, "", ""},
				{`{"stream":true,"input":"a"}`, "", ""},
				{`{"stream":true,"input":"a","messages":[]}`, "", ""},
				{`{"a":{"stream":true,"messages":[]}}`, "", ""},
				{`{"stream":true,"messages":[],"stream_options":"x"}`, "", ""},
				{`[{"stream":true,"messages":[]}]`, "", ""},
				{`{"stream":true,"messages":[]`, "", ""},
				{"{\"stream\":true,\"messages\":\"\xff\"}", "", ""},
				{large, "", ""},
				{`{"stream":true,"messages":[]}`, "Content-Encoding", ""},
				{`{"stream":true,"messages":[]}`, "Content-Digest", ""},
				{`{"stream":true,"messages":[]}`, "Signature", ""},
			} {
				q := asking("k", c.body)
				if c.header != "" {
					q.header[c.header] = "x"
				}
				s.want(q, 400)
				want := c.want
				if want == "" || mode != ask {
					want = c.body
				}
				if n := strconv.Itoa(len(want)); arrived != want || length != n || inside != n {
					t.Errorf("%.100s (%s): %.200s arrived, with Content-Length %s (%s), want %.200s, %s", c.body, c.header, arrived, length, inside, want, n)
				}
			}
		})
	}
}

// TestTokensAskUsageBesides checks that usage is asked for behind another handler that has read the
// body, and not for a request that the zone does not count.
func TestTokensAskUsageBesides(t *testing.T) {
	var arrived string
	s := serve(t, setup{site: `
		rate_limit {
			zone org {
				key {header.X-Org}
				tokens openai
				rule 1000000/1h
			}
		}
		rate_limit {
			zone all {
				in_flight 50
			}
			zone user {
				key {header.X-Key}
				key_missing skip
				tokens openai {
					ask_usage
				}
				rule 1000000/1h
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		b, err := io.ReadAll(r.Body)
		arrived = string(b)
		w.WriteHeader(http.StatusBadRequest)
		return err
	})})
	const body, asked = `{"stream":true,"messages":[]}`, `{"stream_options":{"include_usage":true},"stream":true,"messages":[]}`
	q := asking("k", body)
	if s.want(q, 400); arrived != asked {
		t.Errorf("%s arrived, want %s", arrived, asked)
	}
	delete(q.header, "X-Key")
	if s.want(q, 400); arrived != body {
		t.Errorf("%s arrived of a request that the zone does not count, want %s", arrived, body)
	}
}

// TestTokensBesidePlainHandler has one handler hold what a request may cost, and another count the
// same zone plainly. What is held counts for both.
func TestTokensBesidePlainHandler(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		g := newGate()
		zone := "key {header.X-Key}\nrule 100/1h\n"
		name := newName("team")
		s := serve(t, setup{app: b.app(), site: `
			route /held {
				rate_limit {
					zone ` + name + ` {
						` + zone + `
						cost 60
						settle {http.response.header.X-Cost}
						hold
					}
				}
				` + handle(t, "*", g.ServeHTTP) + `
			}
			route {
				rate_limit {
					zone ` + name + ` {
						` + zone + `
						cost 50
					}
				}
				respond ok
			}`})
		key := map[string]string{"X-Key": "k"}
		held := s.open(g, req{path: "/held", header: key})
		s.want(req{header: key}, 429)
		g.goOn <- true
		<-held
		ended(t)
	})
}
