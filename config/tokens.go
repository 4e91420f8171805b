package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"

	"github.com/dianalimiter/diana/internal/body"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/scan"
)

// Tokens makes the tokens of language models the cost of a zone's requests: what they may take is
// held, and what the response tells of its usage is charged. GET, HEAD, OPTIONS and
// CONNECT cost nothing.
type Tokens struct {
	// The format of the usage in responses: "openai", "anthropic", "gemini" or "ollama",
	// streamed or not. "auto" recognizes all of them. Default: "auto".
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
	// Default: a quarter of the bytes of the request by the weight of the input, and by that
	// of the output as many tokens as the request allows (max_tokens,
	// max_completion_tokens, max_output_tokens, num_predict or
	// generationConfig.maxOutputTokens, times n).
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
	numbers                           []number // by path
	input, cached, cacheWrite, output factor
	reserve                           *key.Template // nil: estimated
	askUsage                          bool
}

// number is what a number of a response counts. Of several of one kind, the greatest counts.
type number uint8

const (
	prompt       number = iota // tokens of the input
	promptElse                 // the same under another name; prompt wins
	promptMore                 // tokens of the input beside it
	cachedOf                   // of the input, those that were read from a cache
	cachedBeside               // tokens beside the input, read from a cache
	writtenOf                  // of the input, those that were written to a cache
	writtenBeside
	output     // tokens of the output
	outputMore // tokens of the output beside it
	total      // tokens of input and output
	numbers
)

// usage are the members in which responses tell their usage, by format.
var usage = map[string]map[string]number{
	"openai": {
		"usage.prompt_tokens": prompt, "usage.completion_tokens": output, "usage.total_tokens": total,
		"usage.prompt_tokens_details.cached_tokens": cachedOf, "usage.prompt_tokens_details.cache_write_tokens": writtenOf,
		"usage.input_tokens": promptElse, "usage.output_tokens": output,
		"usage.input_tokens_details.cached_tokens": cachedOf, "usage.input_tokens_details.cache_write_tokens": writtenOf,
		"response.usage.input_tokens": promptElse, "response.usage.output_tokens": output, "response.usage.total_tokens": total,
		"response.usage.input_tokens_details.cached_tokens": cachedOf, "response.usage.input_tokens_details.cache_write_tokens": writtenOf,
	},
	"anthropic": {
		"usage.input_tokens": promptElse, "usage.output_tokens": output,
		"usage.cache_read_input_tokens": cachedBeside, "usage.cache_creation_input_tokens": writtenBeside,
		"message.usage.input_tokens": promptElse, "message.usage.output_tokens": output,
		"message.usage.cache_read_input_tokens": cachedBeside, "message.usage.cache_creation_input_tokens": writtenBeside,
	},
	"gemini": {
		"usageMetadata.promptTokenCount": prompt, "usageMetadata.toolUsePromptTokenCount": promptMore,
		"usageMetadata.cachedContentTokenCount": cachedOf,
		"usageMetadata.candidatesTokenCount":    output, "usageMetadata.thoughtsTokenCount": outputMore,
	},
	"ollama": {"prompt_eval_count": prompt, "prompt_eval_cached_count": cachedOf, "eval_count": output},
}

// allowed are the members of requests that say how many tokens the output may have, and times
// those that say of how many answers.
var (
	allowed = []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict", "options.num_predict", "generationConfig.maxOutputTokens"}
	times   = []string{"n", "generationConfig.candidateCount"}
)

// bytesPerToken is what a token of the input is taken for before its number is known.
const bytesPerToken = 4

// settle checks the options, and returns them as what settles the cost.
func (o *Tokens) settle() (*Settle, error) {
	t, s := &tokens{askUsage: o.AskUsage}, new(Settle)
	if o.AskUsage && o.Format != "openai" {
		return nil, fmt.Errorf("tokens %s: ask_usage: want tokens openai, whose streams tell their usage only if asked", cmp.Or(o.Format, "auto"))
	}
	known := usage[o.Format]
	switch o.Format {
	case "", "auto":
		known = make(map[string]number)
		for _, members := range usage {
			maps.Copy(known, members)
		}
	default:
		if known == nil {
			return nil, fmt.Errorf("tokens %s: want auto, openai, anthropic, gemini or ollama", o.Format)
		}
	}
	for path, n := range known {
		s.bodies, t.numbers = append(s.bodies, path), append(t.numbers, n)
	}
	var err error
	if s.Paths, err = scan.NewPaths(s.bodies...); err != nil {
		return nil, err
	}
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

// cost returns the cost of what a response told; false: it told nothing, or a weight has no value.
func (t *tokens) cost(r *http.Request, told *Response) (int64, bool) {
	var n [numbers]int64 // tokens are whole
	var has [numbers]bool
	for path, v := range told.Values {
		if v != nil {
			kind := t.numbers[path]
			n[kind], has[kind] = max(n[kind], v.Units), true
		}
	}
	known := slices.Contains(has[:], true)
	if !has[prompt] {
		n[prompt] = n[promptElse]
	} else { // which has all of the input: what else is told of a cache is another name
		n[cachedOf], n[cachedBeside] = max(n[cachedOf], n[cachedBeside]), 0
		n[writtenOf], n[writtenBeside] = max(n[writtenOf], n[writtenBeside]), 0
	}
	input, out := n[prompt], n[output]+n[outputMore]
	cached, written := min(n[cachedOf], input), min(n[writtenOf], input)
	input = max(0, input-cached-written)
	if has[total] {
		out = max(out, n[total]-n[prompt])
	}
	// What a stream has not told yet, or never tells, is taken for what passed: the first events of
	// some formats tell a token of the output.
	if told.Cut || !has[output] && !has[outputMore] {
		out = max(out, int64(told.Events))
	}
	if told.Events > 0 && !has[prompt] && !has[promptElse] {
		input = inputOf(r)
	}
	var s sum
	s.add(&t.input, r, told, input+n[promptMore])
	s.add(&t.cached, r, told, cached+n[cachedBeside])
	s.add(&t.cacheWrite, r, told, written+n[writtenBeside])
	s.add(&t.output, r, told, out)
	return s.cost(), known && !s.unweighed
}

// estimate returns what is held for a request. ok is false if reserve or a weight has no value.
func (t *tokens) estimate(r *http.Request) (cost int64, ok bool) {
	switch {
	case !t.measures(r):
		return 1, true
	case t.reserve != nil:
		n, ok := t.reserve.Number(r)
		return min(max(1, n), MaxCost), ok && n >= 1
	}
	answers := max(1, greatest(r, times))
	var s sum
	s.add(&t.input, r, nil, inputOf(r))
	s.add(&t.output, r, nil, min(greatest(r, allowed), scan.MaxAmount/answers)*answers)
	return max(1, s.cost()), !s.unweighed
}

// inputOf returns for how many tokens the body of a request is taken before their number is known.
func inputOf(r *http.Request) int64 {
	length := min(max(0, r.ContentLength), scan.MaxAmount) // a client may announce any
	if b := body.Of(r); b != nil {
		data, _ := b.Bytes() // or its beginning
		length = max(length, int64(len(data)))
	}
	return (length + bytesPerToken - 1) / bytesPerToken
}

// greatest returns the greatest number in members of the body of a request, at most
// scan.MaxAmount.
func greatest(r *http.Request, members []string) (n int64) {
	for _, name := range members {
		if v, ok := scan.ParseAmount([]byte(body.Field(r, name))); ok {
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
