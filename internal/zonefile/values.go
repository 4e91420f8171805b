package zonefile

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"

	"github.com/dianalimiter/diana/internal/option"
)

// words parses one value or more.
func words(want string, add func([]string)) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		name, words := d.Val(), d.RemainingArgs()
		if len(words) == 0 {
			return d.Errf("%s: want %s", name, want)
		}
		add(words)
		return nil
	}
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
