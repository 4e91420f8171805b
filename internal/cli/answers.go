package cli

import (
	"encoding/json"
	"time"

	"github.com/dianalimiter/diana/internal/metrics"
)

// Prefix is where the admin endpoint answers.
const Prefix = "/rate_limit/"

// Zones is the answer of GET /rate_limit/zones: everything that is in force. In all
// answers durations are seconds.
type Zones struct {
	Now    time.Time `json:"now"`              // the instance's clock
	Stores []Store   `json:"stores"`           // the shared stores
	Rules  *Source   `json:"rules,omitempty"`  // where rules from outside come from
	Zones  []Zone    `json:"zones"`            // ordered by name
	Took   []Timing  `json:"decision_seconds"` // how long decisions took
}

// Store is a shared store.
type Store struct {
	Name      string    `json:"name"`       // by which zones choose it
	Up        bool      `json:"up"`         // whether it is asked
	Mode      string    `json:"mode"`       // shared, or what on_failure makes of it: alone, allow, deny
	Since     time.Time `json:"since"`      // the mode is in force
	OnFailure string    `json:"on_failure"` // local, allow or deny
	Instances int64     `json:"instances"`  // that were last seen alive
}

// Source is the source of rules from outside.
type Source struct {
	Source     string     `json:"source"`                  // redis, http, file, or another module's name
	Since      *time.Time `json:"since,omitempty"`         // they are in force
	Confirmed  *time.Time `json:"confirmed,omitempty"`     // when the source was last seen to hold them
	Error      string     `json:"error,omitempty"`         // what is wrong with the source
	ErrorSince *time.Time `json:"error_since,omitempty"`   // since when
	Unknown    []string   `json:"unknown_zones,omitempty"` // zones of the document that the configuration does not have
}

// Zone is a zone with the rules in force.
type Zone struct {
	Name      string            `json:"name"`                // of the zone
	Store     string            `json:"store"`               // that has its counts
	Origin    string            `json:"origin"`              // of the rules: config, or the kind of source
	Enabled   bool              `json:"enabled"`             // false: a document switched it off
	Shadow    bool              `json:"shadow"`              // it denies nothing
	Key       []string          `json:"key"`                 // as it is configured
	Rules     []Rule            `json:"rules"`               // in force
	Overrides int               `json:"overrides"`           // how many there are
	InFlight  int64             `json:"in_flight,omitempty"` // its limit
	Handlers  int               `json:"handlers"`            // that name the zone
	Keys      int64             `json:"keys"`                // kept in this process
	MaxKeys   int64             `json:"max_keys"`            // that may be kept
	Decisions map[string]uint64 `json:"decisions"`           // by outcome, since the process began
	Denied    map[string]uint64 `json:"denied"`              // by rule
}

// Rule is a rule in force.
type Rule struct {
	Name      string          `json:"name"`              // or number
	Limit     int64           `json:"limit"`             // the cost that may pass in a window
	Window    float64         `json:"window"`            // its length
	Algorithm string          `json:"algorithm"`         // its name
	Options   json.RawMessage `json:"options,omitempty"` // of the algorithm
}

// Timing is how long the decisions of one store took since the process began.
type Timing struct {
	Store string  `json:"store"` // its name
	Count uint64  `json:"count"` // of the decisions that were timed
	Sum   float64 `json:"sum"`   // of their durations
	P50   float64 `json:"p50"`   // an upper bound
	P99   float64 `json:"p99"`   // an upper bound
}

// Key is the answer of GET and DELETE /rate_limit/zones/<zone>/key: where a key
// stands.
type Key struct {
	Zone     string    `json:"zone"`                  // its name
	Key      string    `json:"key"`                   // its hash, as in the names of keys in Redis
	Parts    []string  `json:"parts,omitempty"`       // if they are known
	Override []string  `json:"override,omitempty"`    // whose rules apply, if not the zone's
	Decision string    `json:"decision"`              // what the next request would get
	Rule     string    `json:"rule,omitempty"`        // the first that denies
	Mode     string    `json:"mode,omitempty"`        // who counts: local, shared, alone, allow or deny
	Cost     int64     `json:"cost,omitempty"`        // of the next request
	Shadow   bool      `json:"shadow,omitempty"`      // a denial would only be reported
	RetryIn  *float64  `json:"retry_after,omitempty"` // of a denial
	Rules    []KeyRule `json:"rules"`                 // one by one
	Reset    string    `json:"forgotten,omitempty"`   // of DELETE: everywhere, or only in this instance
	Error    string    `json:"error,omitempty"`       // why not everywhere

	// The zone is full of keys in this process, and this key shares a counter with
	// others. A shared counter is not reset: it cannot be attributed to one key.
	Overflowed bool `json:"shared_counter,omitempty"`
}

// KeyRule is where a key stands with one rule.
type KeyRule struct {
	Name      string   `json:"name"`                  // or number
	Limit     int64    `json:"limit"`                 // that is enforced
	Window    float64  `json:"window"`                // of the limit
	Remaining int64    `json:"remaining"`             // what could still pass
	Reset     float64  `json:"reset_after"`           // until the rule is as if unused
	Admits    bool     `json:"admits"`                // the next request
	RetryIn   *float64 `json:"retry_after,omitempty"` // if it does not, and ever will
}

// Top is the answer of GET /rate_limit/zones/<zone>/top: the keys of a zone that come
// most often to this instance.
type Top struct {
	Zone   string `json:"zone"`        // its name
	Busy   []Hit  `json:"busiest"`     // by requests
	Denied []Hit  `json:"most_denied"` // by denials
}

// Hit is a key and about how often it came lately: what is longer ago counts half for
// each minute.
type Hit struct {
	Key   string `json:"key"`            // its hash
	Name  string `json:"name,omitempty"` // its parts, where log_key shows them
	Times uint32 `json:"times"`          // about
}

// Hits returns keys as they are answered.
func Hits(list []metrics.Hit) []Hit {
	hits := make([]Hit, len(list))
	for i, h := range list {
		hits[i] = Hit{h.Key.String(), h.Name, h.Times}
	}
	return hits
}

// Request describes a request to POST /rate_limit/explain.
type Request struct {
	Method   string            `json:"method"`    // default GET
	URL      string            `json:"url"`       // with scheme and host
	ClientIP string            `json:"client_ip"` // as Caddy would find it
	RemoteIP string            `json:"remote_ip"` // default: the client's
	Headers  map[string]Values `json:"headers"`   // by name
}

// Values are the values of a header: a string, or a list of them.
type Values []string

// UnmarshalJSON implements json.Unmarshaler.
func (v *Values) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*v = make(Values, 1)
		return json.Unmarshal(b, &(*v)[0])
	}
	return json.Unmarshal(b, (*[]string)(v))
}

// Explanation is the answer of POST /rate_limit/explain: what would become of a
// request.
type Explanation struct {
	Decision string    `json:"decision"`              // allowed, denied, or none: no zone applies
	Zone     string    `json:"zone,omitempty"`        // the first that denies
	Rule     string    `json:"rule,omitempty"`        // the first that denies
	RetryIn  *float64  `json:"retry_after,omitempty"` // the longest of all that deny
	Handlers []Handler `json:"handlers"`              // that the request would come to, in order
}

// Handler is a rate_limit handler that a request would come to.
type Handler struct {
	Server  string   `json:"server"`                 // the name of its server
	Zones   []Key    `json:"zones"`                  // that apply
	Without []string `json:"not_matching,omitempty"` // zones that do not
	Error   string   `json:"error,omitempty"`        // of a matcher
}
