package admin

import (
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/ops/running"
)

// mostReplaced is the number of zones that LogReplaced names.
const mostReplaced = 10

// LogReplaced logs the zones whose rules a document replaces: to whoever edits and loads a
// configuration, a rule of it that has no effect looks like a bug.
func LogReplaced(in *running.Instance) {
	var lines [][]zap.Field
	for _, z := range in.Zones() {
		s := z.Status()
		own, replaced := replacedRules(z, s)
		if !replaced {
			continue
		}
		lines = append(lines, []zap.Field{
			zap.String("zone", z.Name), zap.String("rules", shortRules(answerRules(s.Rules))), zap.String("instead_of", shortRules(own)), zap.String("source", in.Origin(s)),
		})
	}
	for _, fields := range lines[:min(len(lines), mostReplaced)] {
		in.Logger.Info("remote rules replace the zone's own", append(fields, zap.Int("zones", len(lines)))...)
	}
}
