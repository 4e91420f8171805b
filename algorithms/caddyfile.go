package algorithms

import (
	"fmt"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/configure/option"
)

// In a Caddyfile, the options of an algorithm are on the line of its rule, in its
// block, or in both. A module reads them in UnmarshalCaddyfile from a dispenser
// whose first token is the algorithm's name:
//
//	gcra burst 20
//	gcra {
//		burst 20
//	}

// UnknownOption is the error of a word that is no option of an algorithm. Its token is in the
// Caddyfile, where whoever parses the rule knows what else it may mean.
type UnknownOption struct {
	Algorithm string          // its name
	Options   []string        // that it has
	Token     caddyfile.Token // the word
}

func (e *UnknownOption) Error() string {
	return fmt.Sprintf("%q is no option of %s, at %s:%d", e.Token.Text, e.Algorithm, e.Token.File, e.Token.Line)
}

// readOptions reads all options of an algorithm.
func readOptions(d *caddyfile.Dispenser, options map[string]option.Parse) error {
	d.Next() // the algorithm's name
	return readMore(d, d.Val(), options)
}

// readMore reads the options that follow.
func readMore(d *caddyfile.Dispenser, name string, options map[string]option.Parse) error {
	s := option.Set{One: options}
	for d.NextArg() || d.NextBlock(0) {
		if !s.Has(d.Val()) {
			return &UnknownOption{name, slices.Sorted(maps.Keys(options)), d.Token()}
		}
		if err := s.Read(d); err != nil {
			return err
		}
	}
	return nil
}

func burstOption(dst *int64) map[string]option.Parse {
	return map[string]option.Parse{"burst": option.Whole(dst, 1, option.Max)}
}
