// Package settle reads in responses what their requests cost: by the terms of settle, and by the tokens
// of language models. Only zones with settle, tokens or linger call it, as [config.Responses].
package settle

import (
	"net/http"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/usage/scan"
)

// Responses implements [config.Responses].
type Responses struct{}

// Settle implements [config.Responses].
func (Responses) Settle(z *config.Zone) (config.Settle, error) {
	if z.Tokens != nil {
		t, err := newTokens(z.Tokens)
		return t, err
	}
	s, err := parseTerms(config.Expand(z.Settle))
	return s, err
}

// Ends implements [config.Responses].
func (Responses) Ends(r *http.Request) config.Measured { return &ends{passing{method: r.Method}} }

// ends looks for nothing but the ends of streams.
type ends struct{ passing }

var noPaths, _ = scan.NewPaths()

// Begin implements [config.Measured].
func (e *ends) Begin(status int, h http.Header) bool { return e.begin(status, h, noPaths, noSink{}) }

// Cost implements [config.Measured].
func (*ends) Cost(config.Response) (int64, bool) { return 0, false }

type noSink struct{}

func (noSink) Found(int, scan.Value) {}
func (noSink) EndText(bool)          {}

// Interface guards.
var (
	_ config.Responses = Responses{}
	_ config.Settle    = (*terms)(nil)
	_ config.Settle    = (*tokens)(nil)
	_ config.Measured  = (*ends)(nil)
	_ config.Measured  = (*termsOf)(nil)
	_ config.Measured  = (*tokensOf)(nil)
)
