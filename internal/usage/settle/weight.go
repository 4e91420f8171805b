package settle

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/usage/scan"
)

// weight is what a token weighs, in tiers by the length of the input.
type weight []tier

// tier is a weight of requests whose input is longer than so many tokens.
type tier struct {
	above  int64
	factor factor
}

// at returns the weight for a request of so many tokens of input.
func (w weight) at(input int64) *factor {
	last := len(w) - 1
	for last > 0 && input <= w[last].above {
		last--
	}
	return &w[last].factor
}

// parseWeight parses what a token weighs: a weight, and perhaps others such as "1.25 above 200000 2.5".
func (s *sources) parseWeight(name string, text config.Value) (w weight, err error) {
	if text == "" {
		text = "1"
	}
	words := strings.Fields(config.Expand(string(text)))
	for i := 0; i < len(words); i += 3 { // weight above <tokens> weight ...
		var t tier
		if i > 0 {
			n, ok := scan.ParseAmount([]byte(words[i-1]))
			if words[i-2] != "above" || !ok || n.Micros > 0 || n.Units <= w[len(w)-1].above {
				return nil, errTiers(name, text)
			}
			t.above = n.Units
		}
		if t.factor, err = s.parseOneWeight(name, text, words[i]); err != nil {
			return nil, err
		}
		w = append(w, t)
	}
	if len(words)%3 != 1 {
		return nil, errTiers(name, text)
	}
	return w, nil
}

func errTiers(name string, text config.Value) error {
	return fmt.Errorf("%s %q: want a weight, and perhaps others for longer inputs, such as 1.25 above 200000 2.5", name, text)
}

func (s *sources) parseOneWeight(name string, text config.Value, word string) (f factor, err error) {
	f, err = s.parseFactor(word)
	switch {
	case errors.Is(err, errSettle), err == nil && (f.written || f.path >= 0), err == nil && f.constant != nil && !decimal.MatchString(word):
		return f, fmt.Errorf("%s %q: want a decimal with at most seven digits before the point and six after it, such as 0.25, or a placeholder", name, text)
	case err != nil:
		return f, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}
