package zonefile

import (
	"maps"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
)

// TestRuleWords checks that algorithms know all words of a rule: they suggest them for misspelt ones.
func TestRuleWords(t *testing.T) {
	words := (&ruleParser{rule: new(config.Rule)}).words().One
	if got, want := slices.Sorted(slices.Values(algorithms.RuleWords)), slices.Sorted(maps.Keys(words)); !slices.Equal(got, want) {
		t.Errorf("RuleWords are %q, the words of a rule %q", got, want)
	}
}
