package admin

import (
	"strings"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/cli"
	"github.com/dianalimiter/diana/internal/limiter"
)

// mostReplaced is the number of zones that LogReplaced names.
const mostReplaced = 10

// LogReplaced logs the zones whose rules a document replaces: to
// whoever edits and loads a configuration, a rule of it that has no effect looks like a bug.
func (in *Instance) LogReplaced() {
	var lines [][]zap.Field
	seen := make(map[string]bool)
	for _, z := range in.Registry.Zones() {
		s := z.Status()
		own, replaced := replacedRules(z, s)
		if seen[z.Name] || !replaced {
			continue
		}
		seen[z.Name] = true
		lines = append(lines, []zap.Field{
			zap.String("zone", z.Name), zap.String("rules", shortRules(answerRules(s.Rules))), zap.String("instead_of", shortRules(own)), zap.String("source", in.Origin(s)),
		})
	}
	for _, fields := range lines[:min(len(lines), mostReplaced)] {
		in.Logger.Info("rules from outside replace the zone's own", append(fields, zap.Int("zones", len(lines)))...)
	}
}

// replacedRules returns the rules that a zone is configured with, and whether a document
// replaces them by others.
func replacedRules(z *limiter.Zone, s limiter.Status) (own []cli.Rule, replaced bool) {
	if !s.FromSource {
		return nil, false
	}
	own = answerRules(z.Config.Rules)
	return own, shortRules(own) != shortRules(answerRules(s.Rules))
}

// shortRules returns rules as a Caddyfile has them, in a line.
func shortRules(rules []cli.Rule) string {
	list := make([]string, len(rules))
	for i := range rules {
		list[i] = rules[i].String()
	}
	return strings.Join(list, ", ")
}
