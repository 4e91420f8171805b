// Package config defines the JSON types of the configuration, checks them, and converts
// the options of other rate limiting plugins.
package config

import (
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Zone is a named set of rules with the requests they apply to and the key by which
// they count.
type Zone struct {
	// The zone's name, 1 to 64 of A-Z a-z 0-9 _ and -, but not "exceeded". It is
	// unique within a handler. Handlers whose zones have the same name must define
	// them alike, and share their counts; a request that passes several of them is
	// counted by the first that is not in shadow. Required.
	Name string `json:"name,omitempty"`

	// The requests that the zone applies to. Each match adds requests; a block of matchers,
	// or a named matcher, narrows them. Default: all requests of the handler.
	MatcherSetsRaw caddyhttp.RawMatcherSets `json:"match,omitempty" caddy:"namespace=http.matchers"`

	// The matching requests that pass uncounted. In a Caddyfile, preflight stands for OPTIONS with
	// Origin and Access-Control-Request-Method. Default: none.
	ExemptRaw caddyhttp.RawMatcherSets `json:"exempt,omitempty" caddy:"namespace=http.matchers"`

	// The parts of the key by which requests are counted: placeholders, constants,
	// or a mix of both. A part that is an IP address is normalized and masked to
	// its prefix. {body.<name>} is a field of a JSON body or an urlencoded form of at
	// most max_body, with dots for objects in objects; it requires key_missing.
	// Default: ["{client_ip}"].
	Key Parts `json:"key,omitempty"`

	// What to do if a part of the key is empty: "client_ip" counts by the client's
	// address instead, "share" counts by the empty part, "skip" lets the request
	// pass uncounted, "deny" denies it. Default: "client_ip"; required with {body.<name>}.
	KeyMissing string `json:"key_missing,omitempty"`

	// What to do if a request repeats a header, cookie or query parameter of the key:
	// "deny" denies it, "first" counts by the first value and removes the others from the
	// request, "join" counts by Caddy's value, which clients can vary. Names of cookies and
	// parameters that PHP or Rack take for each other, such as a.b and a_b, count as one.
	// Default: "deny".
	KeyRepeated string `json:"key_repeated,omitempty"`

	// The prefix length to which IPv4 addresses in the key are masked, 0 to 32
	// bits. Default: 32.
	IPv4Prefix *int `json:"ipv4_prefix,omitempty"`

	// The prefix length to which IPv6 addresses in the key are masked, 0 to 128
	// bits. Default: 64.
	IPv6Prefix *int `json:"ipv6_prefix,omitempty"`

	// The rules, all of which must admit a request. At most 128. Default: none.
	Rules []*Rule `json:"rules,omitempty"`

	// The algorithm of the rules that name none: fixed_window, sliding_log,
	// sliding_window, token_bucket, leaky_bucket, gcra or calendar. Default: sliding_log
	// for limits up to 128, otherwise sliding_window.
	Algorithm string `json:"algorithm,omitempty"`

	// The greatest number of concurrent requests per key: those admitted and not
	// yet answered, 1 to 1000000000. One that fails counts until handle_errors begins.
	// Default: unlimited.
	InFlight int64 `json:"in_flight,omitempty"`

	// Find how many concurrent requests of the zone its upstream serves best, and let others
	// wait. Not beside in_flight. Default: off.
	InFlightAdaptive *Adaptive `json:"in_flight_adaptive,omitempty"`

	// How long a request still counts for in_flight if its client disconnects before the end
	// of the response, up to 1h, because the upstream may still work on it. The request is
	// charged at once. At most 10000 such requests of a zone count. Default: 0.
	Linger caddy.Duration `json:"linger,omitempty"`

	// Deny requests that equal one admitted shortly before, except for GET, HEAD, OPTIONS
	// and CONNECT. Default: off.
	PreventDuplicates *PreventDuplicates `json:"prevent_duplicates,omitempty"`

	// The cost of a request, charged to every rule: an integer of at least 1, or a
	// placeholder. A value that is not such an integer counts as 1. Default: 1.
	Cost Value `json:"cost,omitempty"`

	// The final cost of a request, from its response: a sum of terms, with spaces between
	// them. A term is a placeholder, such as
	// "{http.response.header.X-Tokens}" or "{response.body.usage.total_tokens}", "bytes"
	// for the bytes of the body, a number, or a weight and a placeholder, such as
	// "0.5*{response.body.usage.prompt_tokens}". A term without a value is 0. After the
	// response, settle minus cost is charged if it is positive. Default: off.
	Settle string `json:"settle,omitempty"`

	// Reserve the cost until the response has ended, then charge the value of settle
	// instead, which may be less or more. A reserved cost counts as used. Default: off.
	Hold bool `json:"hold,omitempty"`

	// Count the tokens of language models, in place of cost, settle and hold. Default: off.
	Tokens *Tokens `json:"tokens,omitempty"`

	// Add up the final costs of tokens or settle by these values too, in the metric
	// caddy_rate_limit_group_cost_total and in "caddy rate-limit spend": up to 4 parts with
	// placeholders, such as ["{http.auth.user.id}", "{body.model}"]. At most 200 groups of a zone
	// are kept, and all further ones are the group "other". Of a value longer than 64 bytes, the end
	// is a hash. Credentials are rejected. Default: off.
	GroupBy Parts `json:"group_by,omitempty"`

	// What the numbers of the zone count, a word of 1 to 64 of A-Z a-z 0-9 _ and -, such as
	// "microdollars". Default: "requests", "tokens" with tokens, "units" with cost or settle.
	Unit string `json:"unit,omitempty"`

	// How many bytes of a request's body are read for {body.<name>}, tokens and
	// prevent_duplicates, at most 8388608 (8 MiB). The largest of a handler's zones
	// applies. Each concurrent request may take about three times as much memory.
	// Default: 65536 (64 KiB).
	MaxBody int64 `json:"max_body,omitempty"`

	// Charge only requests whose response has one of these statuses: a code such as
	// "401", or a class such as "4xx". If the next handler returns an error, both its status
	// and that of what handle_errors writes count. A request whose client disconnects before the
	// response is charged. Default: all.
	CountStatus []Value `json:"count_status,omitempty"`

	// How long a request may wait to be admitted before it is denied, up to 1h;
	// with a leaky_bucket, the length of its queue. A client that leaves gives up its
	// place; over HTTP/1, with a body that nothing has read, only at the end of the wait.
	// Default: 0, and 1s for the queue of a leaky_bucket without a burst.
	MaxWait caddy.Duration `json:"max_wait,omitempty"`

	// How many requests of a key may wait in this instance, 1 to 100000. Any more are
	// denied at once. For a leaky_bucket that delays, it is the length of the queue, in
	// units of cost over all instances. Default: unlimited, but at most 1000 requests of
	// a zone wait, or max_waiting if it is greater. With in_flight_adaptive, how many requests
	// of the zone may wait. Default there: 1000.
	MaxWaiting int64 `json:"max_waiting,omitempty"`

	// Decide and report, but never deny, delay or set a header. A leaky_bucket reports
	// requests that it would delay; one that would wait for max_wait is reported as
	// denied. Default: false.
	Shadow bool `json:"shadow,omitempty"`

	// The response to denied requests. Default: the error 429, for the site's
	// error routes, and the status alone in one of them. Calls of gRPC always get a
	// response of gRPC.
	Respond *Respond `json:"respond,omitempty"`

	// Different rules for some keys. Default: none.
	Overrides []*Override `json:"overrides,omitempty"`

	// Exceptions precede all overrides. Only documents have them.
	Exceptions []*Exception `json:"-"`

	// The store of the counts: the name of one of the app's stores, or "local".
	// Default: the app's first store, or "local" if it has none.
	Store string `json:"store,omitempty"`

	// The greatest number of keys kept in this process, at most 1,073,741,824. Default: the app's
	// max_keys.
	MaxKeys int64 `json:"max_keys,omitempty"`

	// With window, a sliding_log of this limit in place of rules, and the defaults of
	// github.com/mholt/caddy-ratelimit for other options of the zone: without a key, all requests
	// count together. Default: off.
	MaxEvents int64 `json:"max_events,omitempty"`

	// The window of max_events. Required with it.
	Window caddy.Duration `json:"window,omitempty"`

	// Written is the name as it was written, if Name replaces it. Logs, events and
	// {http.rate_limit.exceeded.name} have it.
	Written string `json:"-"`

	// NoHeaders leaves the zone out of rate limit headers unless the option headers
	// is set. It is set for zones with max_events.
	NoHeaders bool `json:"-"`
}

// Places reports whether the zone bounds concurrent requests.
func (z *Zone) Places() bool { return z.InFlight > 0 || z.InFlightAdaptive != nil }

// Settles reports whether responses tell the costs of requests.
func (z *Zone) Settles() bool { return z.Settle != "" || z.Tokens != nil }

// Holds reports whether costs are held until the response.
func (z *Zone) Holds() bool { return z.Hold || z.Tokens != nil }

// KeyParts returns the parts of the key. The default is the client's address.
func (z *Zone) KeyParts() []string {
	if len(z.Key) == 0 {
		return []string{"{client_ip}"}
	}
	return z.Key
}

// fixedCost returns the zone's cost if it is a number, otherwise 1.
func (z *Zone) fixedCost() int64 {
	if n, err := strconv.ParseInt(string(z.Cost), 10, 64); err == nil {
		return n
	}
	return 1
}

// PreventDuplicates denies a request with the same zone key, method, host, path and
// query as one that was admitted within the window. Host, without a port, and path are
// compared as keys are, in any spelling. GET, HEAD, OPTIONS and CONNECT requests are never
// duplicates, and one that finds max_keys others in this process is not compared.
type PreventDuplicates struct {
	// How long equal requests are denied after one was admitted. Default: 5s.
	Window caddy.Duration `json:"window,omitempty"`

	// Compare the bodies too. A request whose body exceeds max_body, or has no
	// Content-Length, is never a duplicate. Default: false.
	Body bool `json:"body,omitempty"`
}
