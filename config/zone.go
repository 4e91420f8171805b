// Package config is the JSON configuration: zones, rules, overrides and stores, with their
// checks, and the configurations of other plugins in these words.
package config

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Zone is a named set of rules, with the requests it applies to and the key
// that separates one client from another.
type Zone struct {
	// The zone's name, 1 to 64 of A-Z a-z 0-9 _ and -, but not "exceeded". It
	// stands once in a handler. Handlers that name the same zone with the same
	// definition share its counts.
	Name string `json:"name,omitempty"`

	// The requests that the zone applies to. Default: all that reach the
	// handler.
	MatcherSetsRaw caddyhttp.RawMatcherSets `json:"match,omitempty" caddy:"namespace=http.matchers"`

	// Requests that pass uncounted, though they match.
	ExemptRaw caddyhttp.RawMatcherSets `json:"exempt,omitempty" caddy:"namespace=http.matchers"`

	// What the zone counts by: placeholders, constants, or both in one part.
	// A part whose whole value is an IP address is brought to one form, and
	// cut to its prefix. Default: ["{client_ip}"].
	Key Parts `json:"key,omitempty"`

	// What to do when a part of the key is empty: "client_ip" counts by the
	// client's address instead, "share" keeps the empty part, "skip" lets the
	// request pass uncounted, "deny" denies it. Default: "client_ip".
	KeyMissing string `json:"key_missing,omitempty"`

	// How many bits of an IPv4 address tell clients apart, 0 to 32. Default: 32.
	IPv4Prefix *int `json:"ipv4_prefix,omitempty"`

	// How many bits of an IPv6 address tell clients apart, 0 to 128. Default: 64.
	IPv6Prefix *int `json:"ipv6_prefix,omitempty"`

	// The rules, all of which must admit a request.
	Rules []*Rule `json:"rules,omitempty"`

	// The algorithm of the rules that name none: fixed_window, sliding_log,
	// sliding_window, token_bucket, leaky_bucket or gcra. Default: sliding_log
	// for limits up to 128, sliding_window above.
	Algorithm string `json:"algorithm,omitempty"`

	// How many requests of one key may be unanswered at the same time.
	// Default: any number.
	InFlight int64 `json:"in_flight,omitempty"`

	// Deny a request that equals one admitted shortly before. Default: off.
	PreventDuplicates *PreventDuplicates `json:"prevent_duplicates,omitempty"`

	// What one request takes from every rule: a number of at least 1, or a
	// placeholder. A placeholder's value that is no such number counts as 1.
	// Default: 1.
	Cost Value `json:"cost,omitempty"`

	// After the response, charge what this placeholder says beyond the cost,
	// such as "{http.response.header.X-Tokens}". Default: nothing.
	Settle string `json:"settle,omitempty"`

	// Charge only requests that are answered with one of these: a status such
	// as "401", or a class such as "4xx". Default: all.
	CountStatus []Value `json:"count_status,omitempty"`

	// How long a request may wait for room before it is denied; with a
	// leaky_bucket, how long its queue is. Default: 0, and 1s for the queue of
	// a leaky_bucket without a burst.
	MaxWait caddy.Duration `json:"max_wait,omitempty"`

	// Decide and report, but never deny, delay or set a header. Default: false.
	Shadow bool `json:"shadow,omitempty"`

	// How to answer a denied request. Default: the error 429, for the site's
	// error routes.
	Respond *Respond `json:"respond,omitempty"`

	// Other rules for some keys.
	Overrides []*Override `json:"overrides,omitempty"`

	// The store that keeps the counts: the name of one of the app's stores, or
	// "local". Default: the app's first store, or local if it has none.
	Store string `json:"store,omitempty"`

	// How many keys are kept in this process at most. Default: the app's
	// max_keys.
	MaxKeys int64 `json:"max_keys,omitempty"`

	// With window, instead of rules, one sliding_log with this limit, and the
	// defaults of github.com/mholt/caddy-ratelimit: no key counts all requests
	// together, an empty part is shared, addresses are taken whole, and no
	// headers are set unless headers says so.
	MaxEvents int64 `json:"max_events,omitempty"`

	// The window of max_events.
	Window caddy.Duration `json:"window,omitempty"`

	// NoHeaders says that the zone is in no headers unless the configuration asks
	// for them. Set for a zone with max_events.
	NoHeaders bool `json:"-"`
}

// Parts are those of a key: a list of strings, or one string for one part.
type Parts []string

// UnmarshalJSON implements json.Unmarshaler.
func (p *Parts) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*p = Parts{""}
		return json.Unmarshal(b, &(*p)[0])
	}
	return json.Unmarshal(b, (*[]string)(p))
}

// PreventDuplicates denies a request that equals one that was admitted within
// the window: the same zone key, method, host, path and query. GET, HEAD and
// OPTIONS are never duplicates.
type PreventDuplicates struct {
	// For how long an admitted request makes others duplicates. Default: 5s.
	Window caddy.Duration `json:"window,omitempty"`

	// Compare the bodies too. A body over 64 KiB equals no other. Default: false.
	Body bool `json:"body,omitempty"`
}

// Value is a number or a text, as which it is written in JSON.
type Value string

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(v))
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("%s: want a number or a string", b)
	}
	*v = Value(n)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return strconv.AppendInt(nil, n, 10), nil
	}
	return json.Marshal(string(v))
}
