package test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// answers are the handlers whose responses settle the cost of a request, by path, and what is
// charged of 1,000. The cost is 1.
var answers = []struct {
	path   string
	charge int
	answer http.HandlerFunc
}{
	{"/json", 30, answering("application/json", `{"id":"}","usage":{"prompt":10,"total":30},"text":"{\"usage\":{\"total\":99}}"}`)},
	{"/problem", 7, answering("application/problem+json; charset=utf-8", `{"usage":{"total":6.2}}`)},
	{"/twice", 8, answering("application/json", `{"usage":{"total":5},"usage":{"total":8,"total":null}}`)},
	{"/lines", 9, answering("application/x-ndjson", "{\"usage\":{\"total\":5}}\n{\"usage\":{\"total\":9}}\n{\"a\":1}")},
	{"/events", 12, answering("text/event-stream", "data: {\"usage\":null}\n\ndata: {\"usage\":{\"total\":12}}\n\ndata: [DONE]\n\n")},
	{"/streamed", 40, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, c := range "data: {\"usage\":{\"total\":40}}\n\n" {
			_, _ = w.Write([]byte(string(c)))
			_ = http.NewResponseController(w).Flush()
		}
	}},
	{"/html", 1, answering("text/html", `<p>{"usage":{"total":30}}</p>`)},
	{"/mislabelled", 30, answering("text/html", `{"usage":{"total":30}}`)},
	{"/mislabelled-events", 30, answering("application/json", "\xef\xbb\xbf: x\n\ndata: {\"usage\":{\"total\":30}}\n\n")},
	{"/none", 1, answering("application/json", `{"usage":{"total":"30"}}`)},
	{"/negative", 1, answering("application/json", `{"usage":{"total":-30}}`)},
	{"/cut", 1, answering("application/json", `{"usage":{"total":30`)},
	{"/fault", 30, answering("application/json", `{"usage":{"total":30}]`)},
	{"/missing", 1, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "none", http.StatusNotFound)
	}},
	{"/partial", 1, onlyStatus(http.StatusPartialContent)},
	{"/unchanged", 1, onlyStatus(http.StatusNotModified)},
	{"/encoded", 1, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(compressed(`{"usage":{"total":30}}`))
	}},
	{"/asked", 30, func(w http.ResponseWriter, r *http.Request) { // as the client is willing to read
		w.Header().Set("Content-Type", "application/json")
		if body := `{"usage":{"total":30}}`; strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(compressed(body))
		} else {
			_, _ = w.Write([]byte(body))
		}
	}},
}

func answering(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(body))
	}
}

func onlyStatus(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"usage":{"total":30}}`))
	}
}

func compressed(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return b.Bytes()
}

// TestSettleByBody checks what responses with a body are charged, which pass unchanged, behind
// a proxy and written by a handler.
func TestSettleByBody(t *testing.T) {
	mux := http.NewServeMux()
	for _, a := range answers {
		mux.HandleFunc(a.path, a.answer)
	}
	up := httptest.NewServer(mux)
	defer up.Close()
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					key {path} {header.X-Direct}
					rule 1000/1h
					settle {response.body.usage.total}
				}
			}
			encode
			@direct header X-Direct 1
			handle @direct {
				` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			mux.ServeHTTP(w, r)
			return nil
		}) + `
			}
			reverse_proxy ` + up.Listener.Addr().String()})
		for _, direct := range []string{"0", "1"} {
			for _, a := range answers {
				q := req{path: a.path, header: map[string]string{"X-Direct": direct}}
				first := s.send(q)
				if used := 1000 - left(t, first.get("RateLimit")); used != 1 {
					t.Errorf("%s: %d used before the response", a.path, used)
				}
				recorded := httptest.NewRecorder()
				r := httptest.NewRequest(http.MethodGet, a.path, nil)
				a.answer(recorded, r)
				want := recorded.Body.String()
				if a.path == "/encoded" {
					want = `{"usage":{"total":30}}` // as the client decodes it
				}
				if first.body != want && a.path != "/unchanged" {
					t.Errorf("%s: body %q, want %q", a.path, first.body, want)
				}
				if used := 1000 - left(t, s.send(q).get("RateLimit")) - 1; used != a.charge {
					t.Errorf("%s, direct %q: %d charged, want %d", a.path, direct, used, a.charge)
				}
			}
		}
	})
}

// TestSettleOfCutResponses checks that responses that end early are charged what they had told
// until then, and at least the cost.
func TestSettleOfCutResponses(t *testing.T) {
	const told = "data: {\"usage\":{\"total\":40}}\n\n"
	send := func(w http.ResponseWriter, text string) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(text))
		_ = http.NewResponseController(w).Flush()
	}
	ends := map[string]struct {
		charge int
		serve  func(w http.ResponseWriter, r *http.Request) error
	}{
		"panic": {40, func(w http.ResponseWriter, _ *http.Request) error {
			send(w, told+"data: {\"usage\":{\"total\":50")
			panic(http.ErrAbortHandler)
		}},
		"panic at once": {10, func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) }},
		"error":         {40, func(w http.ResponseWriter, _ *http.Request) error { send(w, told); return http.ErrBodyNotAllowed }},
		"client leaves": {40, func(w http.ResponseWriter, r *http.Request) error {
			send(w, told)
			<-r.Context().Done()
			return nil
		}},
		"told after it left": {50, func(w http.ResponseWriter, r *http.Request) error {
			send(w, told)
			<-r.Context().Done()
			send(w, "data: {\"usage\":{\"total\":50}}\n\n")
			return nil
		}},
		"client leaves at once": {10, func(w http.ResponseWriter, r *http.Request) error {
			send(w, ": nothing yet\n\n")
			<-r.Context().Done()
			return nil
		}},
	}
	onBoth(t, func(t *testing.T, b backend) {
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					key {header.X-Key}
					rule 1000/1h
					cost 10
					settle {response.body.usage.total}
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error { return ends[r.Header.Get("X-Key")].serve(w, r) })})
		for key, c := range ends {
			ctx, leave := context.WithCancel(t.Context())
			resp, err := once.Do(req{header: map[string]string{"X-Key": key}, ctx: ctx}.http(s))
			if err == nil {
				_, _ = resp.Body.Read(make([]byte, 100))
				leave()
				_ = resp.Body.Close()
			}
			leave()
			until(t, key+": the charge", func() bool { return used(s, key) == c.charge })
		}
	})
}

// TestUnknownCost checks that responses that do not tell their cost are counted, and that one
// line says why.
func TestUnknownCost(t *testing.T) {
	mux := http.NewServeMux()
	for _, a := range answers {
		mux.HandleFunc(a.path, a.answer)
	}
	s := serve(t, setup{site: `
		rate_limit {
			zone unknown {
				key all
				rule 1000/1h
				settle {response.body.usage.total}
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		mux.ServeHTTP(w, r)
		return nil
	})})
	for n, path := range []string{"/encoded", "/html", "/partial", "/none", "/cut"} {
		s.send(req{path: path})
		if got := s.metric("unknown_cost_total", "zone", "unknown"); got != float64(n+1) {
			t.Errorf("%s: %v counted, want %d", path, got, n+1)
		}
	}
	s.send(req{path: "/json"})
	s.send(req{path: "/missing"})
	if got := s.metric("unknown_cost_total", "zone", "unknown"); got != 5 {
		t.Errorf("%v counted, want 5", got)
	}
	if got := s.metric("settled_cost_total", "zone", "unknown"); got != 5+30+1 {
		t.Errorf("a cost of %v in all, want 36", got)
	}
	lines := s.log.lines(t, "the cost of a response is unknown")
	if len(lines) != 1 || lines[0]["reason"] != "its body is encoded: Content-Encoding" {
		t.Errorf("lines %v", lines)
	}
}

// TestCostBeyondCapacities checks that a request that has cost more than ten times what a rule
// admits is told in the log, once a minute, and one that has cost less is not.
func TestCostBeyondCapacities(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			log_key
			zone budget {
				key {query.k}
				rule 100/1h token_bucket
				settle {response.body.total}
			}
		}
		` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
		answering("application/json", `{"total":`+r.URL.Query().Get("n")+`}`)(w, r)
		return nil
	})})
	const text = "a request has cost more than ten times what a rule admits at once"
	s.send(req{path: "/?k=a&n=999"})
	if lines := s.log.lines(t, text); len(lines) != 0 {
		t.Errorf("a cost of 999: %v", lines)
	}
	s.send(req{path: "/?k=b&n=1001"})
	s.send(req{path: "/?k=c&n=5000"})
	lines := s.log.lines(t, text)
	if len(lines) != 1 || lines[0]["cost"] != 1001. || lines[0]["capacity"] != 100. || lines[0]["zone"] != "budget" || lines[0]["key"] != "b" {
		t.Errorf("lines %v", lines)
	}
}

// TestHold checks that a held cost counts as used until the response, and what is charged then.
func TestHold(t *testing.T) {
	type end struct {
		cost   string
		held   int
		charge int
		serve  http.HandlerFunc
	}
	ends := map[string]end{
		"less":      {"100", 100, 30, answering("application/json", `{"total":30}`)},
		"more":      {"100", 100, 700, answering("application/json", `{"total":700}`)},
		"nothing":   {"100", 100, 0, answering("application/json", `{"total":0}`)},
		"unknown":   {"100", 100, 100, answering("application/json", `{}`)},
		"not found": {"100", 100, 0, http.NotFound},
		"cut": {"100", 100, 100, func(w http.ResponseWriter, r *http.Request) {
			answering("application/json", `{"total":30}`)(w, r)
			panic(http.ErrAbortHandler)
		}},
		"cut late": {"100", 100, 130, func(w http.ResponseWriter, r *http.Request) {
			answering("application/json", `{"total":130,"x":`)(w, r)
			panic(http.ErrAbortHandler)
		}},
	}
	onBoth(t, func(t *testing.T, b backend) {
		var during int
		var s *site
		s = serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					key {header.X-Key}
					rule 1000/1h
					cost {header.X-Cost}
					settle {response.body.total}
					hold
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
			key := r.Header.Get("X-Key")
			during = used(s, key)
			ends[key].serve(w, r)
			return nil
		})})
		for key, c := range ends {
			resp, err := once.Do(req{header: map[string]string{"X-Key": key, "X-Cost": c.cost}}.http(s))
			if err == nil {
				_ = resp.Body.Close()
			}
			until(t, key+": the charge", func() bool { return used(s, key) == c.charge })
			if during != c.held {
				t.Errorf("%s: %d used until the response, want %d", key, during, c.held)
			}
		}
	})
}

// TestHoldsKeepTheBound sends requests at once, each of which turns out to cost what it held: no
// more of them are served than fit.
func TestHoldsKeepTheBound(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var served atomic.Int64
		all := make(chan struct{})
		s := serve(t, setup{app: b.app(), site: `
			rate_limit {
				zone z {
					key all
					rule 1000/1h
					cost 100
					settle {response.body.total}
					hold
				}
			}
			` + handle(t, "*", func(w http.ResponseWriter, _ *http.Request) error {
			served.Add(1)
			<-all
			w.Header().Set("Content-Type", "application/json")
			_, err := w.Write([]byte(`{"total":100}`))
			return err
		})})
		var denied, done sync.WaitGroup
		denied.Add(20)
		for range 30 {
			done.Go(func() {
				if a, err := s.try(req{}); err == nil && a.status == http.StatusTooManyRequests {
					denied.Done()
				}
			})
		}
		denied.Wait()
		close(all)
		done.Wait()
		if n := served.Load(); n != 10 || used(s, "all") != 1000 {
			t.Errorf("%d served and %d used, want 10 and 1000", n, used(s, "all"))
		}
	})
}

// used returns what a key has used of the 1,000 of zone z.
func used(s *site, key string) int {
	return int(1000 - s.key(http.MethodGet, "z", key).Rules[0].Remaining)
}

// left returns what a RateLimit header says is left of the first zone.
func left(t *testing.T, header string) int {
	t.Helper()
	_, rest, _ := strings.Cut(header, ";r=")
	number, _, _ := strings.Cut(rest, ";")
	n, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("RateLimit %q", header)
	}
	return n
}

// TestErrorsCostNoConstants answers with an error that does not tell its cost: what was charged before
// stays, and no constant term is added.
func TestErrorsCostNoConstants(t *testing.T) {
	s := serve(t, setup{site: `
		rate_limit {
			zone errors {
				key all
				rule 1000/1h
				settle 100 {response.body.points}
			}
		}
		header Content-Type application/json
		respond "[]" 500`})
	s.want(req{}, 500)
	if k := s.key("GET", "errors", "all"); k.Rules[0].Used != 1 {
		t.Errorf("%d charged for an error, want 1", k.Rules[0].Used)
	}
}

// TestInnerDenialCostsNothingOutside has an inner handler deny with a status that looks like a
// success: the outer one charges nothing of what it held.
func TestInnerDenialCostsNothingOutside(t *testing.T) {
	s := serve(t, setup{site: `
		route {
			rate_limit {
				zone outer {
					key all
					rule 1000/1h
					cost 50
					settle {http.response.header.X-Cost}
					hold
				}
			}
			rate_limit {
				zone inner {
					key all
					rule 1/1h
					respond 200
				}
			}
			header X-Cost 5
			respond ok
		}`})
	s.want(req{}, 200, 200, 200)
	if k := s.key("GET", "outer", "all"); k.Rules[0].Used != 5 || k.Rules[0].Held != 0 {
		t.Errorf("%d used and %d held after one of three reached the next handler, want 5 and 0", k.Rules[0].Used, k.Rules[0].Held)
	}
}

// TestSettleTerms checks sums of terms with weights, of which some have no value.
func TestSettleTerms(t *testing.T) {
	for i, c := range []struct {
		terms, body, price string
		charge             int
	}{
		{"{response.body.in} {response.body.out}", `{"in":3,"out":4}`, "", 7},
		{"0.1*{response.body.in} 4*{response.body.out}", `{"in":3,"out":4}`, "", 17}, // 16.3
		{"0.1*{response.body.in} 4*{response.body.out}", `{"out":4}`, "", 16},
		{"{vars.price}*{response.body.in}", `{"in":30}`, "0.5", 15},
		{"{vars.price}*{response.body.in} {response.body.out}", `{"in":30,"out":2}`, "", 2},
		{"10 {response.body.in}", `{"in":30}`, "", 40},
		{"bytes", `0123456789`, "", 10},
		{"0.000001*{response.body.in}", `{"in":2000001}`, "", 3},
		{"{http.response.header.X-Tokens} {response.body.in}", `{"in":1}`, "", 21},
		{"{http.response.body.choices.1.n}", `{"choices":[{"n":2},{"n":3}]}`, "", 3},
		{`{response.body.a\\.b}`, `{"a.b":6}`, "", 6},
	} {
		s := serve(t, setup{site: fmt.Sprintf(`
			vars price "%s"
			rate_limit {
				zone terms%d {
					key all
					rule 1000/1h
					settle %s
				}
			}
			header X-Tokens 20
			header Content-Type application/json
			respond %s`, c.price, i, strings.ReplaceAll(c.terms, `\\`, `\`), "`"+c.body+"`")})
		s.want(req{}, 200)
		if used := 1000 - left(t, s.send(req{}).get("RateLimit")) - 1; used != c.charge {
			t.Errorf("settle %s of %s: %d charged, want %d", c.terms, c.body, used, c.charge)
		}
	}
}
