package config

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Block is for how long a denial blocks a key: in JSON a duration, or a list of them for blocks that
// grow.
type Block []caddy.Duration

// mostBlocks bounds how long a list is, which a check carries to Redis.
const mostBlocks = 8

// UnmarshalJSON implements json.Unmarshaler.
func (b *Block) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '[' {
		err := json.Unmarshal(text, (*[]caddy.Duration)(b))
		if err == nil && len(*b) == 1 && (*b)[0] == 0 {
			err = fmt.Errorf("block %s: want at least 1us", text)
		}
		return err
	}
	*b = make(Block, 1)
	return json.Unmarshal(text, &(*b)[0])
}

// MarshalJSON implements json.Marshaler.
func (b Block) MarshalJSON() ([]byte, error) {
	if len(b) == 1 {
		return json.Marshal(b[0])
	}
	return json.Marshal([]caddy.Duration(b))
}

// times returns for how many microseconds the first block lasts, 0 without one, and those that
// follow it.
func (b Block) times() (first int64, next []int64) {
	for i, d := range b {
		if us := time.Duration(d).Microseconds(); i == 0 {
			first = us
		} else {
			next = append(next, us)
		}
	}
	return first, next
}

// checkBlock checks the block of a rule. A single 0 is none. maxWait is the rule's, or else the zone's.
func (r *Rule) checkBlock(maxWait caddy.Duration) error {
	if len(r.Block) == 0 || len(r.Block) == 1 && r.Block[0] == 0 {
		return nil
	}
	if len(r.Block) > mostBlocks {
		return fmt.Errorf("block: %d durations: want at most %d", len(r.Block), mostBlocks)
	}
	last := time.Duration(0)
	for _, one := range r.Block {
		switch d := time.Duration(one); {
		case d < time.Microsecond || d%time.Microsecond != 0:
			return fmt.Errorf("block %v: want at least 1us, in whole microseconds%s", d, seconds(d))
		case d > MaxWindow:
			return fmt.Errorf("block %v: want at most %v", d, MaxWindow)
		case maxWait > 0:
			return fmt.Errorf("block %v beside max_wait %v: want one of them", d, time.Duration(maxWait))
		case d < last:
			return fmt.Errorf("block %v after %v: want each at least as long as the one before; 1h30m is one duration", d, last)
		default:
			last = d
		}
	}
	return nil
}
