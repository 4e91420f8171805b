package admin

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/cli"
)

// answerRules converts the rules of a zone to an answer.
func answerRules(set *config.RuleSet) []cli.Rule {
	list := make([]cli.Rule, len(set.Algorithms))
	for i, alg := range set.Algorithms {
		list[i] = cli.Rule{
			Name: set.Labels[i], Limit: set.Specs[i].Limit, LimitFrom: set.From[i].LimitFrom, Window: limiter.InSeconds(set.Specs[i].Window), Period: set.Specs[i].Period.String(),
			Notify:    set.From[i].Notify,
			Algorithm: strings.TrimPrefix(string(alg.CaddyModule().ID), algorithms.Namespace+"."), Options: optionsOf(alg),
		}
		for _, d := range set.From[i].Block {
			list[i].Blocks = append(list[i].Blocks, time.Duration(d).Seconds())
		}
		if len(list[i].Blocks) > 0 {
			list[i].Block = list[i].Blocks[0]
		}
		list[i].Config, _ = json.Marshal(set.From[i])
	}
	return list
}

// optionsOf returns the options of an algorithm as JSON; nil if none is set.
func optionsOf(alg algorithms.Algorithm) json.RawMessage {
	b, err := json.Marshal(alg)
	if err != nil || string(b) == "{}" {
		return nil
	}
	return b
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
