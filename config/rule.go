package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/configure/option"
)

// Rule is a limit per window, enforced by one algorithm.
type Rule struct {
	// The rule's name in headers, logs and metrics, 1 to 64 of A-Z a-z 0-9 _ and -.
	// Default: the rule's number in its zone, from 1.
	Name string `json:"name,omitempty"`

	// The total cost of the requests admitted per window, at least 1. In an
	// override, 0 denies every request. The greatest limit is 1048576 for sliding_log and
	// 2^52 for fixed_window and sliding_window. For the others, limit and window in
	// microseconds are reduced to lowest terms: burst times that window is at most 2^52,
	// and that limit is below 2^32. Required.
	Limit int64 `json:"limit"`

	// A placeholder for the limit, such as "{http.auth.user.limit}": a whole number, or a
	// rate with this window. 0 denies the request. If the value is empty or
	// invalid, limit applies, and the metric bad_limit_total counts the request. Such a rule is
	// never leased, and cannot be a sliding_log; its default algorithm is sliding_window.
	// Default: none.
	LimitFrom string `json:"limit_from,omitempty"`

	// The length of the window, from 1us to about 142 years, in whole microseconds; of
	// calendar the period "day", "week", "month" or "year". Required.
	Window Window `json:"window"`

	// How long a key is blocked once this rule denies it, or for as long as the rule
	// itself would deny it, if that is longer. Requests meanwhile are not charged and do not
	// lengthen the block. Of several durations, each at least as long as the one before and at
	// most 8, the next one counts each time that the key is blocked again within a day of the end
	// of its last block in the zone, and the last one stays. Not with max_wait. Default: off.
	Block Block `json:"block,omitempty"`

	// How long a request that this rule denies may wait instead. Default: the zone's max_wait.
	MaxWait caddy.Duration `json:"max_wait,omitempty"`

	// Percentages of the limit, from 1 to 100. When a charge reaches one of them, the event
	// rate_limit_reached is emitted and a line is logged. The algorithm must be calendar,
	// fixed_window, sliding_window or sliding_log. Such a rule is never leased. Default: none.
	Notify []int `json:"notify,omitempty"`

	// The algorithm and its options. Default: the zone's algorithm.
	AlgorithmRaw json.RawMessage `json:"algorithm,omitempty" caddy:"namespace=http.rate_limit.algorithms inline_key=name"`
}

// ParseRate parses <count>[r]/<window>, such as 10/s, 100r/m or 1000/1h30m.
func ParseRate(s string) (limit int64, window Window, err error) {
	count, rest, found := strings.Cut(s, "/")
	if !found {
		return 0, Window{}, fmt.Errorf("rate %q: want <count>/<window>, such as 10/s", s)
	}
	limit, err = strconv.ParseInt(strings.TrimSuffix(count, "r"), 10, 64)
	if whole := strings.TrimSuffix(count, "r"); err != nil && option.IsWhole(whole) {
		return 0, Window{}, fmt.Errorf("rate %q: count %q: want %s", s, count, option.Range)
	} else if err != nil || !option.IsWhole(whole) {
		if meant := option.WholeMeant(count); meant != "" {
			return 0, Window{}, fmt.Errorf("rate %q: count %q: did you mean %s", s, count, meant)
		}
		return 0, Window{}, fmt.Errorf("rate %q: count %q: want a whole number, as in 10/s", s, count)
	}
	window, err = ParseWindow(rest)
	if err != nil {
		return 0, Window{}, fmt.Errorf("rate %q: window %q: %w", s, rest, err)
	}
	return limit, window, nil
}

// DefaultAlgorithm returns the algorithm if neither the rule nor its zone names one:
// sliding_log, which is exact, while a log takes at most 1 KiB per key, otherwise
// sliding_window.
func (r *Rule) DefaultAlgorithm() string {
	if r.Limit <= 128 && r.LimitFrom == "" {
		return "sliding_log"
	}
	return "sliding_window"
}

// delayer is an algorithm that can delay admitted requests.
type delayer interface {
	MaxDelay(algorithms.Spec) int64
}

// LoadAlgorithm returns a rule's algorithm with its options.
func LoadAlgorithm(r *Rule, zoneAlgorithm string) (algorithms.Algorithm, error) {
	raw := map[string]json.RawMessage{}
	name := cmp.Or(zoneAlgorithm, r.DefaultAlgorithm())
	if len(r.AlgorithmRaw) > 0 {
		if err := json.Unmarshal(r.AlgorithmRaw, &raw); err != nil {
			return nil, fmt.Errorf("algorithm: %w: want an object such as {\"name\": \"gcra\"}", err)
		}
		if n, ok := raw["name"]; ok {
			if err := json.Unmarshal(n, &name); err != nil {
				return nil, fmt.Errorf("algorithm: name: %w", err)
			}
			delete(raw, "name")
		}
	}
	info, err := caddy.GetModule(algorithms.Namespace + "." + name)
	if err != nil {
		return nil, fmt.Errorf("algorithm %q: %s", name, option.Want(name, option.Modules(algorithms.Namespace)))
	}
	a, ok := info.New().(algorithms.Algorithm)
	if !ok {
		return nil, fmt.Errorf("algorithm %q: the module is not a rate limiting algorithm", name)
	}
	if err := checkNames(raw, a); err != nil {
		return nil, fmt.Errorf("algorithm %s: %w", name, err)
	}
	options, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	if err = option.Unmarshal(options, a); err == nil {
		err = validate(a)
	} else if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s %s: want %s", wrong.Field, raw[wrong.Field], option.Wanted(wrong))
	}
	if err != nil {
		return nil, fmt.Errorf("algorithm %s: %w", name, err)
	}
	return a, nil
}

// validate checks the options of an algorithm as Caddy does those of a module. The algorithm is not provisioned: each
// document of a rule source loads algorithms, and Caddy keeps what it has provisioned until the
// configuration ends.
func validate(a algorithms.Algorithm) error {
	if _, ok := a.(caddy.Provisioner); ok {
		return errors.New("it has Provision, which is not called: want all that it needs in its options")
	}
	if v, ok := a.(caddy.Validator); ok {
		return v.Validate()
	}
	return nil
}

// checkNames rejects the names of options in another case, which encoding/json would take: a name
// that stands twice would go unnoticed.
func checkNames(raw map[string]json.RawMessage, a algorithms.Algorithm) error {
	t := reflect.TypeOf(a)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	names := []string{"name"}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	for _, name := range names {
		for given := range raw {
			if given != name && strings.EqualFold(given, name) {
				return fmt.Errorf("option %q: want %s", given, name)
			}
		}
	}
	return nil
}
