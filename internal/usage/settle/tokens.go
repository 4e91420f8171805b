package settle

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/body"
	"github.com/dianalimiter/diana/internal/usage/dialect"
	"github.com/dianalimiter/diana/internal/usage/scan"
)

// tokens are checked [config.Tokens].
type tokens struct {
	sources
	table                             *dialect.Table
	input, cached, cacheWrite, output weight
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

// newTokens checks the options, but for the reserve.
func newTokens(o *config.Tokens) (*tokens, error) {
	t := &tokens{askUsage: o.AskUsage}
	if o.AskUsage && o.Format != "openai" {
		return nil, fmt.Errorf("tokens %s: ask_usage: want tokens openai, whose streams tell their usage only if asked", cmp.Or(o.Format, "auto"))
	}
	var err error
	if t.table, err = dialect.NewTable(o.Format); err != nil {
		return nil, err
	}
	if t.input, err = t.parseWeight("input", o.Input); err != nil {
		return nil, err
	}
	for _, w := range []struct {
		name string
		text config.Value
		to   *weight
	}{{"cached", o.Cached, &t.cached}, {"cache_write", o.CacheWrite, &t.cacheWrite}, {"output", o.Output, &t.output}} {
		if *w.to, err = t.parseWeight(w.name, w.text); err != nil {
			return nil, err
		}
		if w.text == "" && w.to != &t.output {
			*w.to = t.input
		}
	}
	return t, nil
}

// Placeholders implements [config.Settle].
func (t *tokens) Placeholders() (names []string) {
	for _, w := range []weight{t.input, t.cached, t.cacheWrite, t.output} {
		for i := range w {
			names = append(names, w[i].factor.template.Placeholders()...)
		}
	}
	return names
}

// ReadsResponse implements [config.Settle].
func (*tokens) ReadsResponse() bool { return true }

// Measure implements [config.Settle].
func (t *tokens) Measure(r *http.Request, asks bool) config.Measured {
	if asks && t.askUsage {
		askUsage(r)
	}
	return &tokensOf{passing: passing{method: r.Method}, told: told{r: r}, tokens: t, passed: watch(r)}
}

// tokensOf is a response that tells tokens.
type tokensOf struct {
	passing
	told
	tokens *tokens
	usage  *dialect.Usage // nil: the body was not read
	passed *passed        // of the request; nil: it has no body
}

// Begin implements [config.Measured].
func (o *tokensOf) Begin(status int, h http.Header) bool {
	if o.tokens.headers {
		o.header = h.Clone()
	}
	usage := o.tokens.table.Read()
	reads := o.begin(status, h, o.tokens.table.Paths, usage)
	if reads {
		o.usage = usage
	}
	return reads
}

// Cost implements [config.Measured]. It returns false if the response told no usage, or a weight has no
// value.
func (o *tokensOf) Cost(end config.Response) (int64, bool) {
	o.end = end
	n, known := dialect.Tokens{}, false
	if o.usage != nil {
		n, known = o.usage.Tokens(o.scanner.Streams(), func() int64 { return inputOf(o.r, o.passed) })
	}
	var s sum
	input := n.Input + n.Cached + n.Written
	s.add(o.tokens.input.at(input), &o.told, n.Input)
	s.add(o.tokens.cached.at(input), &o.told, n.Cached)
	s.add(o.tokens.cacheWrite.at(input), &o.told, n.Written)
	s.add(o.tokens.output.at(input), &o.told, n.Output)
	return s.cost(), known && !s.unweighed
}

// Estimate implements [config.Settle].
func (t *tokens) Estimate(r *http.Request) (h config.Hold, ok bool) {
	asks := &told{r: r}
	var all, asked, spare sum
	input := inputOf(r, nil)
	all.add(t.input.at(input), asks, input)
	output := t.output.at(input)
	if most := bounded(r); most > 0 {
		all.add(output, asks, most)
		asked.add(output, asks, most)
	} else {
		spare.add(output, asks, min(answers(r), scan.MaxAmount/unbounded)*unbounded)
	}
	return config.Hold{Cost: max(1, all.cost()), Asked: asked.cost(), Spare: spare.cost()}, !all.unweighed && !spare.unweighed
}

// Bound implements [config.Settle].
func (t *tokens) Bound(r *http.Request) int64 {
	var s sum
	s.add(t.output.at(inputOf(r, nil)), &told{r: r}, bounded(r))
	return s.cost()
}

// bounded returns to how many tokens a request bounds its output; 0: it does not.
func bounded(r *http.Request) int64 {
	most, n := greatest(r, allowed), answers(r)
	return min(most, scan.MaxAmount/n) * n
}

// answers returns how many answers a request asks for.
func answers(r *http.Request) int64 { return max(1, greatest(r, times)) }

// inputOf returns for how many tokens the body of a request is taken whose number nobody told: what
// was read of it before the decision, or has passed since, and what it announced beside.
func inputOf(r *http.Request, p *passed) int64 {
	return sizeOf(r, p).tokens(min(r.ContentLength, scan.MaxAmount)) // a client may announce any
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
