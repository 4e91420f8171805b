package settle

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/usage/scan"
)

// terms are those of settle, whose sum is the final cost of a request: each is a number, a placeholder, or
// the product of both.
type terms struct {
	sources
	terms []term
	paths *scan.Paths // of bodies; nil: none
}

// sources are what terms, or weights, are read from beside the request.
type sources struct {
	headers bool     // whether a field of the response's header is one
	bodies  []string // the paths in the response's body
}

// term is a factor or the product of two. A product is weighted.
type term struct {
	weight *factor // nil: 1
	value  factor
}

// factor is a number, or the source of one.
type factor struct {
	constant *scan.Amount
	template key.Template
	header   string       // the field of the response's header that the template is; empty: it is another
	trailer  key.Template // the same field among trailers that the header does not announce
	path     int          // index in bodies; below 0: none
	written  bool         // the number of bytes of the body
}

const (
	responseHeader = "http.response.header."
	responseBody   = "http.response.body."
	writtenBytes   = "bytes"
)

// decimal is a weight: a million is a price of a dollar in millionths.
var decimal = regexp.MustCompile(`^[0-9]{1,7}([.][0-9]{1,6})?$`)

// index is an index of an array as other programs write it.
var index = regexp.MustCompile(`\[([0-9]+)\]`)

// errSettle says the form of a term.
var errSettle = errors.New("want placeholders, perhaps with weights, such as {http.response.header.X-Tokens} or 0.5*{response.body.usage.total_tokens}")

// parseTerms parses the terms of settle.
func parseTerms(text string) (*terms, error) {
	s := new(terms)
	constant := true
	for _, field := range strings.Fields(text) {
		t, err := s.parseTerm(field)
		if err != nil {
			return nil, fmt.Errorf("settle %q: %w", text, err)
		}
		s.terms, constant = append(s.terms, t), constant && t.value.constant != nil
	}
	if constant {
		return nil, fmt.Errorf("settle %q: %w", text, errSettle)
	}
	var err error
	if len(s.bodies) > 0 {
		s.paths, err = scan.NewPaths(s.bodies...)
	}
	if err != nil {
		return nil, fmt.Errorf("settle %q: %w", text, err)
	}
	return s, nil
}

func (s *sources) parseTerm(text string) (t term, err error) {
	left, right, weighted := strings.Cut(text, "*")
	if !weighted {
		t.value, err = s.parseFactor(text)
		return t, err
	}
	weight, err := s.parseFactor(left)
	if err != nil {
		return t, err
	}
	if weight.constant != nil && !decimal.MatchString(left) {
		return t, fmt.Errorf("weight %s: want a decimal with at most seven digits before the point and six after it, such as 0.25", left)
	}
	t.weight = &weight
	if t.value, err = s.parseFactor(right); err == nil && t.value.constant != nil {
		err = fmt.Errorf("term %s: want a placeholder after the weight", text)
	}
	return t, err
}

func (s *sources) parseFactor(text string) (f factor, err error) {
	f.path = -1
	if a, ok := scan.ParseAmount([]byte(text)); ok && text[0] != '-' {
		f.constant = &a
		return f, nil
	}
	if f.written = text == writtenBytes; f.written {
		return f, nil
	}
	name, isPlaceholder := strings.CutPrefix(text, "{")
	name, closed := strings.CutSuffix(name, "}")
	if !isPlaceholder || !closed || strings.ContainsAny(name, "{}") {
		return f, errSettle
	}
	if strings.HasPrefix(name, "response.") {
		name = "http." + name
	}
	if path, ok := strings.CutPrefix(name, responseBody); ok {
		if index.MatchString(path) {
			return f, fmt.Errorf("%s: want {%s%s}, with a dot before the index of an array", text, responseBody, index.ReplaceAllString(path, ".$1"))
		}
		f.path = s.path(path)
		return f, nil
	}
	if field, ok := strings.CutPrefix(name, responseHeader); ok {
		f.header, s.headers = http.CanonicalHeaderKey(field), true
		if f.trailer, err = key.Parse("{" + responseHeader + http.TrailerPrefix + f.header + "}"); err != nil {
			return f, err
		}
	}
	if f.template, err = key.Parse("{" + name + "}"); err != nil {
		return f, err
	}
	if f.template.ReadsBody() {
		return f, fmt.Errorf("placeholder %s: the body of the request is known before: want it as cost", text)
	}
	return f, nil
}

// path returns the index of a path.
func (s *sources) path(text string) int {
	if known := slices.Index(s.bodies, text); known >= 0 {
		return known
	}
	s.bodies = append(s.bodies, text)
	return len(s.bodies) - 1
}

// lastValues are numbers of a body, by path: of several at one path the last.
type lastValues []*scan.Amount

// Found implements [scan.Sink].
func (l lastValues) Found(path int, v scan.Value) {
	if v.Kind == scan.Number {
		l[path] = &v.Amount
	}
}

// EndText implements [scan.Sink].
func (lastValues) EndText(bool) {}

// Placeholders implements [config.Settle].
func (s *terms) Placeholders() (names []string) {
	for _, t := range s.terms {
		names = append(names, t.value.template.Placeholders()...)
		if t.weight != nil {
			names = append(names, t.weight.template.Placeholders()...)
		}
	}
	return names
}

// ReadsResponse implements [config.Settle].
func (s *terms) ReadsResponse() bool { return s.paths != nil }

// Estimate implements [config.Settle]. It is for tokens alone.
func (*terms) Estimate(*http.Request) (config.Hold, bool) { return config.Hold{Cost: 1}, true }

// Bound implements [config.Settle]. It is for tokens alone.
func (*terms) Bound(*http.Request) int64 { return 0 }

// Measure implements [config.Settle].
func (s *terms) Measure(r *http.Request, _ bool) config.Measured {
	return &termsOf{passing: passing{method: r.Method}, told: told{r: r}, terms: s}
}

// termsOf is a response that tells terms.
type termsOf struct {
	passing
	told
	terms *terms
}

// Begin implements [config.Measured].
func (o *termsOf) Begin(status int, h http.Header) bool {
	if o.terms.headers {
		o.header = h.Clone()
	}
	if o.terms.paths == nil {
		return false
	}
	o.values = make(lastValues, o.terms.paths.Len())
	return o.begin(status, h, o.terms.paths, o.values)
}

// Cost implements [config.Measured]: the sum of the terms. A term without a value is 0. It returns false
// if no term has one, or a weight has none.
func (o *termsOf) Cost(end config.Response) (cost int64, ok bool) {
	o.end = end
	var total sum
	weighed := true
	for _, t := range o.terms.terms {
		value, has := t.value.amount(&o.told)
		if !has {
			continue
		}
		ok = ok || t.value.constant == nil
		weight := scan.Amount{Units: 1}
		if t.weight != nil {
			if weight, has = t.weight.amount(&o.told); !has {
				weighed = false
				continue
			}
		}
		total.addAmount(weight, value)
	}
	return total.cost(), ok && weighed
}

// amount returns the number; false: it has no value.
func (f *factor) amount(t *told) (a scan.Amount, ok bool) {
	switch {
	case f.constant != nil:
		return *f.constant, true
	case f.written:
		return scan.Amount{Units: t.end.Written}, t.end.Status != http.StatusSwitchingProtocols // whose bytes pass elsewhere
	case f.header != "" && t.header[f.header] != nil: // which a handler outside may have changed since
		return scan.ParseAmount([]byte(strings.TrimSpace(strings.Join(t.header[f.header], ","))))
	case f.path < 0: // perhaps a trailer, which servers of gRPC do not announce
		return scan.ParseAmount([]byte(cmp.Or(f.template.Text(t.r), f.trailer.Text(t.r))))
	case f.path < len(t.values) && t.values[f.path] != nil:
		return *t.values[f.path], true
	}
	return a, false
}
