package diana

import (
	"encoding/json"
	"errors"
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

	quiet bool // no headers unless the configuration asks for them
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

// Rule is a limit over a window under one algorithm.
type Rule struct {
	// A name for headers, logs and metrics, 1 to 64 of A-Z a-z 0-9 _ and -.
	// Default: the rule's number in its zone, from 1.
	Name string `json:"name,omitempty"`

	// The cost that may pass in one window, at least 1; in an override also 0,
	// which blocks the key.
	Limit int64 `json:"limit"`

	// The length of the window, from a microsecond to 142 years.
	Window caddy.Duration `json:"window"`

	// The algorithm and its options. Default: the zone's algorithm.
	AlgorithmRaw json.RawMessage `json:"algorithm,omitempty" caddy:"namespace=http.rate_limit.algorithms inline_key=name"`
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

// Respond is how a denied request is answered.
type Respond struct {
	// The status, 400 to 599 or 200. Default: 429.
	Status int `json:"status,omitempty"`

	// The body, in which placeholders are replaced.
	Body string `json:"body,omitempty"`

	// Answer with a problem detail (RFC 9457) instead of the body. Default: false.
	Problem bool `json:"problem,omitempty"`

	// Headers to set on the answer, in whose values placeholders are replaced.
	Headers map[string][]string `json:"headers,omitempty"`
}

// Override gives some keys other rules than their zone's.
type Override struct {
	// As many parts as the zone's key: "*" matches any part, a CIDR an
	// address, anything else itself. The most exact override wins.
	Key []string `json:"key"`

	// Count nothing for these keys. Default: false.
	Unlimited bool `json:"unlimited,omitempty"`

	// The rules for these keys. A limit of 0 blocks them.
	Rules []*Rule `json:"rules,omitempty"`
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

const maxName = 64

// checkName checks the name of a zone or of a rule.
func checkName(name string) error {
	ok := len(name) >= 1 && len(name) <= maxName
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	}
	switch {
	case name == "exceeded":
		return errors.New(`name "exceeded" is taken by the placeholders of denied requests: want another`)
	case !ok:
		return fmt.Errorf("name %q: want 1 to 64 of A-Z a-z 0-9 _ and -", name)
	}
	return nil
}

// Headers that tell a client where it stands.
const (
	headersDraft  = "draft"
	headersLegacy = "legacy"
	headersAll    = "all"
	headersOff    = "off"
)

func checkHeaders(s string) error {
	switch s {
	case "", headersDraft, headersLegacy, headersAll, headersOff:
		return nil
	}
	return fmt.Errorf("headers %q: want draft, legacy, all or off", s)
}

// configError says which part of a zone is wrong, so that the Caddyfile's
// parser can name its line.
type configError struct {
	at  any // *Rule, *Override, or nil for the zone
	err error
}

func (e *configError) Error() string { return e.err.Error() }
func (e *configError) Unwrap() error { return e.err }
