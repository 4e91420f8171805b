package config

import (
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/dianalimiter/diana/internal/body"
	"github.com/dianalimiter/diana/internal/dialect"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/scan"
)

// Settle is the final cost of a request: the sum of its terms, each a number, a placeholder, or the
// product of both.
type Settle struct {
	Paths   *scan.Paths // the numbers of the response's body, in the order of Response.Values; nil: none
	Headers bool        // whether a term is a field of the response's header

	tokens *tokens // instead of terms; nil: none
	terms  []term
	bodies []string // the paths
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
	header   string // the field of the response's header that the template is; empty: it is another
	path     int    // index in Paths; below 0: none
	written  bool   // the number of bytes of the body
}

// Hold is what a request is charged, or holds, before its response.
type Hold struct {
	Cost  int64 // at least 1
	Asked int64 // the part of it that the request or the configuration names; the rest is guessed
	Spare int64 // is held beside it, up to a tenth of the least capacity, for output that nothing bounds
}

// Response is what a response tells of the cost of its request.
type Response struct {
	Header  http.Header    // as it was written; nil: it was not, or no term is in it
	Values  []*scan.Amount // of the paths; nil: the body did not tell it
	Usage   *dialect.Usage // of the body, in a zone with tokens; nil: it was not read
	Written int64          // bytes of the body
	Streams bool           // the body is more than one text
	Request *body.Watched  // the body of the request; nil: it was not counted

	Measured bool   // it tells terms of settle
	Status   int    // 0: there was none
	Gone     bool   // the client left before there was a status
	Cut      bool   // it ended early, or the client left before its end
	Lacks    string // why the body tells nothing, such as its encoding; empty: it may
}

// never reports whether the request never reached the next handler.
func (r *Response) never() bool { return r.Status == 0 && !r.Gone && !r.Cut }

const (
	responseHeader = "http.response.header."
	responseBody   = "http.response.body."
	writtenBytes   = "bytes"
)

// decimal is a weight.
var decimal = regexp.MustCompile(`^[0-9]{1,6}([.][0-9]{1,6})?$`)

// errSettle says the form of a term.
var errSettle = errors.New("want placeholders, perhaps with weights, such as {http.response.header.X-Tokens} or 0.5*{response.body.usage.total_tokens}")

// parseSettle parses the terms of settle.
func parseSettle(text string) (*Settle, error) {
	s := new(Settle)
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
		s.Paths, err = scan.NewPaths(s.bodies...)
	}
	if err != nil {
		return nil, fmt.Errorf("settle %q: %w", text, err)
	}
	return s, nil
}

func (s *Settle) parseTerm(text string) (t term, err error) {
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
		return t, fmt.Errorf("weight %s: want a decimal with at most six digits on each side of the point, such as 0.25", left)
	}
	t.weight = &weight
	if t.value, err = s.parseFactor(right); err == nil && t.value.constant != nil {
		err = fmt.Errorf("term %s: want a placeholder after the weight", text)
	}
	return t, err
}

func (s *Settle) parseFactor(text string) (f factor, err error) {
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
	if !isPlaceholder || !closed {
		return f, errSettle
	}
	if strings.HasPrefix(name, "response.") {
		name = "http." + name
	}
	if path, ok := strings.CutPrefix(name, responseBody); ok {
		f.path = s.path(path)
		return f, nil
	}
	if field, ok := strings.CutPrefix(name, responseHeader); ok {
		f.header, s.Headers = http.CanonicalHeaderKey(field), true
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
func (s *Settle) path(text string) int {
	if known := slices.Index(s.bodies, text); known >= 0 {
		return known
	}
	s.bodies = append(s.bodies, text)
	return len(s.bodies) - 1
}

// Measures reports whether the response to a request tells terms as it passes.
func (s *Settle) Measures(r *http.Request) bool {
	return s != nil && (s.tokens == nil || s.tokens.measures(r))
}

// Read has what a response's body tells noted in told, as it passes.
func (s *Settle) Read(told *Response) scan.Sink {
	if s.tokens != nil {
		told.Usage = s.tokens.table.Read()
		return told.Usage
	}
	told.Values = make([]*scan.Amount, s.Paths.Len())
	return lastValues(told.Values)
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

// Placeholders returns the names of the placeholders, without {response.body.*}.
func (s *Settle) Placeholders() (names []string) {
	if t := s.tokens; t != nil {
		for _, w := range []*factor{&t.input, &t.cached, &t.cacheWrite, &t.output} {
			names = append(names, w.template.Placeholders()...)
		}
	}
	for _, t := range s.terms {
		names = append(names, t.value.template.Placeholders()...)
		if t.weight != nil {
			names = append(names, t.weight.template.Placeholders()...)
		}
	}
	return names
}

// million is the number of parts of a unit.
var million = big.NewInt(1_000_000)

// Cost returns the sum of the terms, rounded up, at most [MaxCost]. A term without a value is 0. It
// returns false if no term has one, or a weight has none.
func (s *Settle) Cost(r *http.Request, told *Response) (cost int64, ok bool) {
	if s.tokens != nil {
		return s.tokens.cost(r, told)
	}
	var total sum
	weighed := true
	for _, t := range s.terms {
		value, has := t.value.amount(r, told)
		if !has {
			continue
		}
		ok = ok || t.value.constant == nil
		weight := scan.Amount{Units: 1}
		if t.weight != nil {
			if weight, has = t.weight.amount(r, told); !has {
				weighed = false
				continue
			}
		}
		total.addAmount(weight, value)
	}
	return total.cost(), ok && weighed
}

func micros(a scan.Amount) *big.Int {
	n := new(big.Int).Mul(big.NewInt(a.Units), million)
	return n.Add(n, big.NewInt(a.Micros))
}

// amount returns the number; false: it has no value.
func (f *factor) amount(r *http.Request, told *Response) (a scan.Amount, ok bool) {
	switch {
	case f.constant != nil:
		return *f.constant, true
	case f.written:
		return scan.Amount{Units: told.Written}, told.Status != http.StatusSwitchingProtocols // whose bytes pass elsewhere
	case f.header != "" && told != nil && told.Header[f.header] != nil: // which a handler outside may have changed since
		return scan.ParseAmount([]byte(strings.TrimSpace(strings.Join(told.Header[f.header], ","))))
	case f.path < 0: // perhaps a trailer
		return scan.ParseAmount([]byte(f.template.Text(r)))
	case f.path < len(told.Values) && told.Values[f.path] != nil:
		return *told.Values[f.path], true
	}
	return a, false
}
