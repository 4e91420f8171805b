package config

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"net/http"

	"github.com/dianalimiter/diana/internal/body"
	"github.com/dianalimiter/diana/internal/dialect"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/scan"
)

// Tokens makes the tokens of language models the cost of a zone's requests: what they may take is
// held, and what the response tells of its usage is charged. GET, HEAD, OPTIONS and
// CONNECT cost nothing.
type Tokens struct {
	// The format of the usage in responses, streamed or not: "openai" (and those with the same
	// members), "anthropic", "gemini", "ollama", "cohere", "bedrock" (Converse as JSON) or
	// "llamacpp". "auto" recognizes all of them. Default: "auto".
	Format string `json:"format,omitempty"`

	// What a token of the input weighs: a decimal with at most six digits on each side of the
	// point, or a placeholder, such as a price from map. Default: 1.
	Input Value `json:"input,omitempty"`

	// What a token of the input weighs that was read from a cache. Default: as input.
	Cached Value `json:"cached,omitempty"`

	// What a token of the input weighs that was written to a cache. Default: as input.
	CacheWrite Value `json:"cache_write,omitempty"`

	// What a token of the output weighs, reasoning included. Default: 1.
	Output Value `json:"output,omitempty"`

	// What is held until the response ends: a whole number of at least 1, or a placeholder.
	// A rule of a lower capacity is an error. Default: a token of the input for four bytes of
	// the request, and for 256 bytes of long base64, by its weight, and by that of the output
	// as many tokens as the request allows (max_tokens, max_completion_tokens,
	// max_output_tokens, num_predict, n_predict, generationConfig.maxOutputTokens or
	// inferenceConfig.maxTokens, times n or best_of); if it does not say, 1000 times n, at most
	// a tenth of the least capacity.
	Reserve Value `json:"reserve,omitempty"`

	// Add stream_options.include_usage to requests for streams of completions, which have no
	// usage otherwise. Only for the format "openai". Bodies that are encoded, signed or above
	// max_body are not changed, nor are requests in a shadow zone. Some upstreams reject the
	// member, and some clients cannot read the event with the usage, whose choices are empty.
	// Default: false.
	AskUsage bool `json:"ask_usage,omitempty"`
}

// tokens are checked Tokens.
type tokens struct {
	table                             *dialect.Table
	input, cached, cacheWrite, output factor
	reserve                           *key.Template // nil: estimated
	askUsage                          bool
}

// allowed are the members of requests that say how many tokens the output may have, and times
// those that say of how many answers.
var (
	allowed = []string{
		"max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict", "n_predict", "options.num_predict", "inferenceConfig.maxTokens",
		"generationConfig.maxOutputTokens", "generationConfig.max_output_tokens", "generation_config.maxOutputTokens", "generation_config.max_output_tokens",
	}
	times = []string{"n", "best_of", "generationConfig.candidateCount", "generationConfig.candidate_count", "generation_config.candidateCount", "generation_config.candidate_count"}
)

// unbounded is how many tokens of output are held for each answer that nothing bounds.
const unbounded = 1000

// settle checks the options, and returns them as what settles the cost.
func (o *Tokens) settle() (*Settle, error) {
	t, s := &tokens{askUsage: o.AskUsage}, new(Settle)
	if o.AskUsage && o.Format != "openai" {
		return nil, fmt.Errorf("tokens %s: ask_usage: want tokens openai, whose streams tell their usage only if asked", cmp.Or(o.Format, "auto"))
	}
	var err error
	if t.table, err = dialect.NewTable(o.Format); err != nil {
		return nil, err
	}
	s.Paths = t.table.Paths
	if t.input, err = s.parseWeight("input", o.Input); err != nil {
		return nil, err
	}
	for _, w := range []struct {
		name string
		text Value
		to   *factor
	}{{"cached", o.Cached, &t.cached}, {"cache_write", o.CacheWrite, &t.cacheWrite}, {"output", o.Output, &t.output}} {
		if *w.to, err = s.parseWeight(w.name, w.text); err != nil {
			return nil, err
		}
		if w.text == "" && w.to != &t.output {
			*w.to = t.input
		}
	}
	if o.Reserve != "" {
		r, err := parseCost("reserve", o.Reserve)
		if err != nil {
			return nil, err
		}
		t.reserve = &r
	}
	s.tokens = t
	return s, nil
}

// parseWeight parses what a token weighs.
func (s *Settle) parseWeight(name string, text Value) (f factor, err error) {
	if text == "" {
		text = "1"
	}
	f, err = s.parseFactor(Expand(string(text)))
	switch {
	case errors.Is(err, errSettle), err == nil && (f.written || f.path >= 0), err == nil && f.constant != nil && !decimal.MatchString(string(text)):
		return f, fmt.Errorf("%s %q: want a decimal with at most six digits on each side of the point, such as 0.25, or a placeholder", name, text)
	case err != nil:
		return f, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

// readsBody reports whether the request's body matters: to what is held, or to a weight, which map
// may take by the model.
func (t *tokens) readsBody() bool {
	return t.askUsage || t.reserve == nil || !t.fixed()
}

// fixed reports whether reserve and all weights are numbers.
func (t *tokens) fixed() bool {
	_, reserved := t.reserve.Constant()
	return reserved && t.input.constant != nil && t.cached.constant != nil && t.cacheWrite.constant != nil && t.output.constant != nil
}

// measures reports whether the response to a request tells tokens that it took: that to a GET may
// repeat what another was charged. The Content-Type says nothing, since upstreams may ignore it.
func (t *tokens) measures(r *http.Request) bool { return Unsafe(r.Method) }

// Unsafe reports whether requests of a method may change something. CONNECT opens a WebSocket over
// HTTP/2 and HTTP/3, as GET does over HTTP/1.
func Unsafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodConnect:
		return false
	}
	return true
}

// cost returns the cost of a response; false: it told no usage, or a weight has no value.
func (t *tokens) cost(r *http.Request, told *Response) (int64, bool) {
	n, known := dialect.Tokens{}, false
	if told.Usage != nil {
		n, known = told.Usage.Tokens(told.Streams, func() int64 { return inputOf(r, told.Request) })
	}
	var s sum
	s.add(&t.input, r, told, n.Input)
	s.add(&t.cached, r, told, n.Cached)
	s.add(&t.cacheWrite, r, told, n.Written)
	s.add(&t.output, r, told, n.Output)
	return s.cost(), known && !s.unweighed
}

// estimate returns what is held for a request. ok is false if reserve or a weight has no value.
func (t *tokens) estimate(r *http.Request) (h Hold, ok bool) {
	switch {
	case !t.measures(r):
		return Hold{Cost: 1}, true
	case t.reserve != nil:
		n, ok := t.reserve.Number(r)
		n = min(max(1, n), MaxCost)
		return Hold{Cost: n, Asked: n}, ok && n >= 1
	}
	answers := max(1, greatest(r, times))
	var all, asked, spare sum
	all.add(&t.input, r, nil, inputOf(r, nil))
	if most := greatest(r, allowed); most > 0 {
		most = min(most, scan.MaxAmount/answers) * answers
		all.add(&t.output, r, nil, most)
		asked.add(&t.output, r, nil, most)
	} else {
		spare.add(&t.output, r, nil, min(answers, scan.MaxAmount/unbounded)*unbounded)
	}
	return Hold{max(1, all.cost()), asked.cost(), spare.cost()}, !all.unweighed && !spare.unweighed
}

// inputOf returns for how many tokens the body of a request is taken whose number nobody told: what
// was read of it before the decision, or has passed since, and what it announced beside.
func inputOf(r *http.Request, passed *body.Watched) int64 {
	size := passed.Size()
	if size == (body.Size{}) {
		size = body.Of(r).Size()
	}
	return size.Tokens(min(r.ContentLength, scan.MaxAmount)) // a client may announce any
}

// greatest returns the greatest number in members of the body of a request, at most
// scan.MaxAmount.
func greatest(r *http.Request, members []string) (n int64) {
	for _, name := range members {
		if v, ok := scan.ParseAmount([]byte(body.Member(r, name))); ok {
			n = max(n, v.Units)
		}
	}
	return n
}

// sum is a sum of weighted numbers, exact in millionths of millionths.
type sum struct {
	total     big.Int
	unweighed bool // a weight had no value
}

// add adds a whole number by its weight.
func (s *sum) add(weight *factor, r *http.Request, told *Response, n int64) {
	if n == 0 {
		return
	}
	w, ok := weight.amount(r, told)
	if !ok {
		s.unweighed = true
		return
	}
	s.addAmount(w, scan.Amount{Units: n})
}

func (s *sum) addAmount(weight, value scan.Amount) {
	s.total.Add(&s.total, new(big.Int).Mul(micros(weight), micros(value)))
}

// cost returns the sum, rounded up, at most [MaxCost].
func (s *sum) cost() int64 {
	square := new(big.Int).Mul(million, million)
	n := new(big.Int).Add(&s.total, new(big.Int).Sub(square, big.NewInt(1)))
	if n.Div(n, square); !n.IsInt64() || n.Int64() > MaxCost {
		return MaxCost
	}
	return n.Int64()
}
