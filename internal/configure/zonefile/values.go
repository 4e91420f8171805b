package zonefile

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/option"
)

// words parses one value or more. What looks like another option behind the first one is an error,
// unless it is in quotes.
func words(want string, add func([]string)) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		var words []string
		name, tokens := d.Val(), d.RemainingArgsAsTokens()
		if len(tokens) == 0 {
			return d.Errf("%s: want %s", name, want)
		}
		for i, t := range tokens {
			if err := notAlone(t); i > 0 && err != nil {
				return option.At(t, fmt.Errorf("%s %w", name, err))
			}
			words = append(words, t.Text)
		}
		add(words)
		return nil
	}
}

// notAlone returns an error about a word that is an option of its own, or the rate of a rule; nil: it is
// neither.
func notAlone(t caddyfile.Token) error {
	if t.Quoted() {
		return nil
	}
	if _, _, err := config.ParseRate(t.Text); err == nil {
		return fmt.Errorf("%q: a rate: want rule %s on a line of its own", t.Text, t.Text)
	}
	return option.OwnLine(t.Text, InZone, inRule, "a site's rate_limit")
}

// size parses a number of bytes, with a unit or without one.
func size(dst *int64, most int64) option.Parse {
	return option.Value(dst, "a size up to "+humanize.IBytes(uint64(most))+", such as 1MiB", func(v string) (int64, bool) {
		n, err := humanize.ParseBytes(v)
		return int64(n), err == nil && n > 0 && n <= uint64(most)
	})
}

// bits parses the length of an address prefix.
func bits(dst **int, most int64) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		*dst = new(int)
		return option.Whole(*dst, 0, most)(d)
	}
}

// LocatedAt adds the position of a token to an error, unless it has a position.
func LocatedAt(t caddyfile.Token, err error) error {
	if strings.Contains(err.Error(), fmt.Sprintf("%s:", t.File)) {
		return err
	}
	return option.At(t, err)
}

// Header parses header <name> <value>. Its errors have no value, which may be a
// secret.
func Header[T ~map[string][]string](dst *T) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		var name, value string
		if !d.Args(&name, &value) || name == "" {
			return d.Errf("header: want a name and a value")
		}
		if d.NextArg() {
			return d.Errf("header %s: want one value, in quotes if it has spaces", name)
		}
		if *dst == nil {
			*dst = make(T)
		}
		name = http.CanonicalHeaderKey(name)
		(*dst)[name] = append((*dst)[name], value)
		return nil
	}
}

// parseStore parses store <name>.
func (p *Parser) parseStore(d *caddyfile.Dispenser) error {
	err := option.Text(&p.Zone.Store, "the name of a store, or local")(d)
	if err == nil && d.NextArg() {
		d.RemainingArgs()
		return d.WrapErr(option.ErrStoreInSite)
	}
	return err
}
