package diana

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/redis"
)

// What the admin API says of one key.

type statusOfKey struct {
	Zone      string            `json:"zone"`
	Key       string            `json:"key"` // its hash, as in the names of keys in Redis
	Parts     []string          `json:"parts,omitempty"`
	Override  []string          `json:"override,omitempty"` // whose rules apply, if not the zone's
	Decision  string            `json:"decision"`           // what the next request would get
	Rule      string            `json:"rule,omitempty"`     // the first that denies
	Mode      string            `json:"mode,omitempty"`     // who counts: local, shared, alone, allow or deny
	Cost      int64             `json:"cost,omitempty"`
	Shadow    bool              `json:"shadow,omitempty"`
	RetryIn   *float64          `json:"retry_after,omitempty"` // seconds, of a denial
	Rules     []statusOfKeyRule `json:"rules"`
	Forgotten string            `json:"forgotten,omitempty"` // everywhere, or only in this instance
	Error     string            `json:"error,omitempty"`

	// The zone is full of keys in this process, and this one counts together with
	// others. What they share no reset forgets.
	Crowded bool `json:"shared_counter,omitempty"`
}

type statusOfKeyRule struct {
	Name      string   `json:"name"`
	Limit     int64    `json:"limit"`
	Window    float64  `json:"window"`
	Remaining int64    `json:"remaining"`
	Reset     float64  `json:"reset_after"`
	Admits    bool     `json:"admits"`
	RetryIn   *float64 `json:"retry_after,omitempty"`
}

// namedKey is a key that somebody asked for.
type namedKey struct {
	key   stores.Key
	parts []string
	built built
	cost  int64
}

// zone returns a zone by its name. Handlers that name the same one share it.
func (a *App) zone(name string) *zone {
	for _, h := range a.remote.list() {
		for _, z := range h.zones {
			if z.Name == name {
				return z
			}
		}
	}
	return nil
}

// maxPart is the longest part of a key that is taken.
const maxPart = 8 << 10

// named reads a key from a query: part for each of its parts, or hash.
func (z *zone) named(q url.Values) (k namedKey, err error) {
	k.cost = z.fixed
	if k.cost == 0 {
		k.cost = 1
	}
	if text := q.Get("cost"); text != "" {
		if k.cost, err = strconv.ParseInt(text, 10, 64); err != nil || k.cost < 1 {
			return k, fmt.Errorf("cost %q: want a number of at least 1", text)
		}
		k.cost = min(k.cost, maxCost)
	}
	if text := q.Get("hash"); text != "" {
		var ok bool
		if k.key, ok = stores.ParseKey(text); !ok {
			return k, fmt.Errorf("hash %q: want a key as zones/%s/top shows it", text[:min(len(text), 64)], z.Name)
		}
		return k, nil
	}
	k.parts = q["part"]
	if len(k.parts) != len(z.key.parts) {
		return k, fmt.Errorf("%d parts: want %d, each as part=... of %q, or hash=... alone", len(k.parts), len(z.key.parts), z.keyWords())
	}
	k.built.b = append(k.built.b, keyOfParts)
	for i, s := range k.parts {
		if len(s) > maxPart {
			return k, fmt.Errorf("part %d: want at most %d bytes", i+1, maxPart)
		}
		if s == "" && z.key.missing != missingShare {
			return k, fmt.Errorf("part %d is empty: want a value of %s", i+1, z.keyWords()[i])
		}
		if z.key.parts[i].single() {
			k.built.b = z.key.appendValue(k.built.b, s, &k.built.group)
		} else {
			k.built.b = appendMixed(k.built.b, s)
		}
		k.built.ends[i] = len(k.built.b)
	}
	k.key = z.hasher.key(k.built.b)
	return k, nil
}

// keyWords are the parts of the zone's key as they are configured.
func (z *zone) keyWords() []string {
	if len(z.Key) == 0 {
		return []string{"{client_ip}"}
	}
	return z.Key
}

// look says where a key stands. Nothing is charged.
func (z *zone) look(ctx context.Context, k namedKey) statusOfKey {
	t := z.terms.Load()
	s := statusOfKey{Zone: z.Name, Key: k.key.String(), Parts: k.parts, Shadow: t.shadow, Cost: k.cost, Rules: []statusOfKeyRule{}}
	if t.off {
		s.Decision = skipped.String()
		return s
	}
	set := t.rules
	if v := t.override(&k, len(z.key.parts)); v != nil {
		s.Override = v.config.Key
		if v.unlimited {
			s.Decision = skipped.String()
			return s
		}
		if set = v.set; set.blocked >= 0 {
			s.deny(t.shadow, set.labels[set.blocked])
			return s
		}
	}
	if len(set.counter.Rules) == 0 && set.counter.InFlight == 0 {
		s.Decision = allowed.String()
		return s
	}
	it := stores.ZoneCheck{Counter: set.counter, Key: k.key, Tag: k.key, Group: z.hasher.groupOf(&k.built, k.key), Cost: k.cost}
	s.judge(ctx, z, set, &it)
	return s
}

// override is that of a named key. A key that is only known by its hash can
// only be that of an exact one.
func (t *terms) override(k *namedKey, parts int) *override {
	if len(k.built.b) == 0 {
		return t.overrides.exact[k.key]
	}
	return t.overrides.find(&k.built, k.key, parts)
}

func (s *statusOfKey) deny(shadow bool, label string) {
	s.Rule, s.Decision = label, denied.String()
	if shadow {
		s.Decision = shadowDenied.String()
	}
}

// judge asks the zone's store about an item.
func (s *statusOfKey) judge(ctx context.Context, z *zone, set *ruleSet, it *stores.ZoneCheck) {
	store := z.store
	if shared, ok := store.(*redis.Store); ok {
		store = shared.At(it.Tag)
	}
	mode := stores.Peek(ctx, store, it)
	s.Mode, s.Decision, s.Crowded = mode.String(), allowed.String(), it.Overflowed
	longest, can := int64(0), true
	for i, res := range it.Results {
		r := statusOfKeyRule{
			Name: set.labels[i], Limit: it.Rules[i].Limit(), Window: inSeconds(it.Rules[i].Window()),
			Remaining: res.Remaining, Reset: inSeconds(res.Reset), Admits: res.Admit,
		}
		if !res.Admit {
			if res.Retry == algorithms.Never {
				can = false
			} else {
				retry := res.Retry
				if res.Held {
					retry = heldRetry.Microseconds()
				}
				seconds := inSeconds(retry)
				r.RetryIn, longest = &seconds, max(longest, retry)
			}
			if s.Rule == "" {
				s.deny(s.Shadow, r.Name)
			}
		}
		s.Rules = append(s.Rules, r)
	}
	switch {
	case it.Full && s.Rule == "":
		s.deny(s.Shadow, ruleInFlight)
		longest = max(longest, heldRetry.Microseconds())
	case mode == stores.ModeDeny:
		s.deny(s.Shadow, ruleStore)
	}
	if s.Rule != "" && can && longest > 0 {
		retry := inSeconds(longest)
		s.RetryIn = &retry
	}
}

var errNoRequest = errors.New(`want a request such as {"method": "GET", "url": "https://example.com/path", "client_ip": "192.0.2.1"}`)
