package cli

import (
	"encoding/json"
	"time"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/follow/lists"
	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/topk"
	"github.com/dianalimiter/diana/rules"
)

// Prefix is the prefix of the paths of the admin API.
const Prefix = "/rate_limit/"

// Zones is the answer of GET /rate_limit/zones. In all answers, durations are in seconds.
type Zones struct {
	Overview
	Fleet *Fleet `json:"fleet,omitempty"` // with ?fleet: all instances, of which requests, decisions and denials are the sums
	Zones []Zone `json:"zones"`           // ordered by name
}

// Overview describes the whole instance.
type Overview struct {
	Now      time.Time        `json:"now"`              // time of the answer
	Instance Instance         `json:"instance"`         // the instance that answers
	Requests metrics.Requests `json:"requests"`         // requests since the process started, each counted once, however many zones it met
	Stores   []Store          `json:"stores"`           // the shared stores
	Rules    *Source          `json:"rules,omitempty"`  // the rule source
	Lists    []lists.List     `json:"lists,omitempty"`  // files of keys of overrides
	Took     []Timing         `json:"decision_seconds"` // durations of decisions, by store
}

// Timing is the durations of decisions in one store since the process started, in
// seconds, as the admin API answers them.
type Timing struct {
	Store string  `json:"store"` // name of the store
	Count uint64  `json:"count"` // number of timed decisions
	Sum   float64 `json:"sum"`   // total duration
	P50   float64 `json:"p50"`   // upper bound of the median
	P99   float64 `json:"p99"`   // upper bound of the 99th percentile
}

// Instance is the process that answers.
type Instance struct {
	Host    string    `json:"host"`             // name of the machine or container
	Listen  []string  `json:"listen,omitempty"` // addresses on which its HTTP servers listen, at most three: they tell instances on one machine apart
	Caddy   string    `json:"caddy"`            // version of Caddy
	Diana   string    `json:"diana"`            // version of this module
	Config  string    `json:"config"`           // hash of the rate limits of its configuration: equal in instances with equal ones
	Since   time.Time `json:"since"`            // when this configuration was loaded
	Started time.Time `json:"started"`          // when the process started
}

// Live is a message of GET /rate_limit/live. The first has the zones and the history that
// is kept, those that follow the history since the one before, and the zones if one changed.
type Live struct {
	Overview

	// ReadOnly is set where keys cannot be reset and rules cannot be written.
	ReadOnly bool `json:"read_only,omitempty"`

	// Version is a hash of the zones, which the parameter have repeats: zones that are
	// known are not sent.
	Version string `json:"version"`

	// Zones are all zones without their counts; absent: they are as the reader has them.
	Zones []Zone `json:"zones,omitzero"`

	// Blocked are the numbers of keys that this instance knows to be blocked, by zone; absent
	// zones have none.
	Blocked map[string]int64 `json:"blocked,omitempty"`

	// History is the history since the last message. Zones that decided nothing are left out.
	History history.Past `json:"history"`

	// Marks are the events since the last message, in the first those that are kept.
	Marks []history.Mark `json:"marks"`

	// Open is the zone of the parameter open.
	Open *OpenZone `json:"open,omitempty"`
}

// OpenZone is a zone with its counts, keys and costs.
type OpenZone struct {
	Zone
	Top   Top    `json:"top"`             // its most frequent keys
	Spend *Spend `json:"spend,omitempty"` // its costs by group; absent: it has no group_by
}

// Store is the status of a shared store.
type Store struct {
	Name      string    `json:"name"`       // name of the store
	Up        bool      `json:"up"`         // whether it is used; false: unavailable, or a node of it
	Mode      string    `json:"mode"`       // shared, also in the second after an outage in which this instance may still decide locally; while unavailable fallback, allow or deny, for the keys of nodes_down if there are any
	Since     time.Time `json:"since"`      // start of the mode
	OnFailure string    `json:"on_failure"` // local, allow or deny
	Instances int64     `json:"instances"`  // number of instances last seen alive; 0: none was counted yet

	// Share is the part of each limit that this instance enforces while the store is
	// unavailable, 0 to 1; absent: the store is used, or nothing is counted.
	Share float64 `json:"share,omitempty"`

	Calls       uint64  `json:"calls"`        // calls of the script since the store was configured
	Checks      uint64  `json:"checks"`       // checks that were batched into them
	CallSeconds float64 `json:"call_seconds"` // their total duration

	// Nodes of a Cluster that are unavailable, longest first. The keys of the others
	// are shared.
	Down []Node `json:"nodes_down,omitempty"`
}

// Node is a node of a Cluster that is unavailable.
type Node struct {
	Address string    `json:"address"` // host:port
	Since   time.Time `json:"since"`   // when it became unavailable
}

// Source is the status of the rule source.
type Source struct {
	Source     string    `json:"source"`                  // redis, http, file, or another module's name
	State      string    `json:"state"`                   // ok; empty: it never had a document; rejected: its document is invalid; away: it cannot be read, was not read yet, or lost its document
	Since      time.Time `json:"since,omitzero"`          // when the document was applied
	Confirmed  time.Time `json:"confirmed,omitzero"`      // when the source last confirmed the document
	Lost       bool      `json:"lost,omitempty"`          // whether it is away because its document is gone
	Error      string    `json:"error,omitempty"`         // current error of the source
	ErrorSince time.Time `json:"error_since,omitzero"`    // time of the first of these errors
	Unknown    []string  `json:"unknown_zones,omitempty"` // zones of the document that the configuration does not have
}

// Validation is the answer of POST /rate_limit/rules/validate and PUT /rate_limit/rules:
// whether a document is valid for the running configuration.
type Validation struct {
	Valid   bool     `json:"valid"`                   // whether it would be taken
	Zones   int      `json:"zones,omitempty"`         // number of its zones, if it is valid
	Unknown []string `json:"unknown_zones,omitempty"` // zones that the configuration does not have, at most ten: their rules are not checked
	Error   string   `json:"error,omitempty"`         // what is wrong, with its pointer
	Pointer string   `json:"pointer,omitempty"`       // JSON pointer to what is wrong; empty: the whole document
}

// Edited is the answer of POST /rate_limit/rules/edit: a document before and after edits. Nothing
// was written.
type Edited struct {
	Validation
	ETag   string `json:"etag"`           // of the document, for If-Match
	Before string `json:"before"`         // the document, with its members in order; empty: its source has lost it
	After  string `json:"after"`          // the same after the edits
	What   string `json:"what"`           // the edits as the list of changes has them
	Note   string `json:"note,omitempty"` // why they may not have the effect that was meant
}

// Changes is the answer of GET /rate_limit/rules/changes.
type Changes struct {
	Changes  []rules.Change `json:"changes"`            // the last 50, the newest first
	Previous string         `json:"previous,omitempty"` // the document before the last of them
}

// Zone is the status of a zone.
type Zone struct {
	Name         string              `json:"name"`                         // name of the zone
	Store        string              `json:"store"`                        // name of its store
	Origin       string              `json:"origin"`                       // origin of the rules: config, or the kind of source
	Enabled      bool                `json:"enabled"`                      // false: disabled by a document
	Shadow       bool                `json:"shadow"`                       // whether it only reports denials
	Key          []string            `json:"key"`                          // parts of the key, as configured
	IPv4         int                 `json:"ipv4_prefix"`                  // bits of an IPv4 address in the key that count
	IPv6         int                 `json:"ipv6_prefix"`                  // likewise of an IPv6 address
	LogKey       bool                `json:"log_key"`                      // whether keys are shown by name
	Uncounted    bool                `json:"disable_metrics,omitempty"`    // whether its decisions are not counted
	Unit         string              `json:"unit,omitempty"`               // of the numbers of its rules: tokens or units; absent: requests
	Rules        []Rule              `json:"rules"`                        // rules in force
	Configured   []Rule              `json:"configured_rules,omitempty"`   // the configuration's rules, if a document replaces them
	Exceptions   []*config.Exception `json:"exceptions,omitempty"`         // of a document: they precede the overrides until they end
	Overrides    int                 `json:"overrides"`                    // number of overrides
	InFlight     int64               `json:"in_flight,omitempty"`          // limit of concurrent requests per key
	Alone        int64               `json:"in_flight_enforced,omitempty"` // the part of it that this instance enforces, while the store is unavailable
	Adaptive     *config.Adaptive    `json:"in_flight_adaptive,omitempty"` // in_flight adaptive, as configured
	Places       *metrics.PlaceState `json:"places,omitempty"`             // with it: its limit, and what is in flight and waits in this instance
	PlacesOfAll  []InstancePlaces    `json:"places_of_all,omitempty"`      // the same of each instance, in answers about all of them
	Handlers     int                 `json:"handlers"`                     // number of handlers with the zone
	Keys         int64               `json:"keys"`                         // number of keys in this process: of a zone in Redis, those that it knows for an outage
	Blocked      int64               `json:"blocked,omitempty"`            // number of keys that this instance knows to be blocked
	MaxKeys      int64               `json:"max_keys"`                     // greatest number of keys in this process
	Decisions    map[string]uint64   `json:"decisions"`                    // by outcome, since the process started
	Cost         uint64              `json:"settled_cost,omitempty"`       // what requests cost by their responses, with tokens or settle, since the process started
	Denied       map[string]uint64   `json:"denied"`                       // denials by rule
	ShadowDenied map[string]uint64   `json:"shadow_denied,omitempty"`      // denials by rule that were only reported, as the zone is in shadow, or was
}

// Rule is a rule in force.
type Rule struct {
	Name      string          `json:"name"`                 // name or number
	Limit     int64           `json:"limit"`                // cost admitted per window
	LimitFrom string          `json:"limit_from,omitempty"` // placeholder for the limit; limit is for requests that bring none
	Window    float64         `json:"window"`               // length of the window; of a period, the longest
	Period    string          `json:"period,omitempty"`     // of the calendar: day, week, month or year; absent: none
	Block     float64         `json:"block,omitempty"`      // for how long a denial blocks the key
	Blocks    []float64       `json:"blocks,omitempty"`     // the same of the blocks that follow each other: the first, the next...
	Notify    []int           `json:"notify,omitempty"`     // percentages of the limit that are told when they are reached
	Algorithm string          `json:"algorithm"`            // name of the algorithm
	Options   json.RawMessage `json:"options,omitempty"`    // options of the algorithm

	// Enforced is the part of the limit that this instance enforces while the zone's
	// store is unavailable; absent: the limit.
	Enforced int64 `json:"enforced,omitempty"`

	// Config is the rule as a configuration or document has it.
	Config json.RawMessage `json:"config,omitempty"`
}

// Exceptions is the answer of GET /rate_limit/exceptions: what block and allow have set, and has not
// ended.
type Exceptions struct {
	Exceptions []Exception `json:"exceptions"` // by zone, those that end first first
}

// Exception is one that is in force.
type Exception struct {
	Zone string `json:"zone"` // name of the zone
	Does string `json:"does"` // blocked, unlimited, or its rules as a Caddyfile has them
	*config.Exception
}

// Found is the answer of GET /rate_limit/keys: the state of a key in the zones that have
// counted it.
type Found struct {
	Fleet  *Fleet        `json:"fleet,omitempty"`           // with ?fleet: all instances, of which the denials are the sums
	Keys   []limiter.Key `json:"keys"`                      // those nearest to a denial first
	Denied []Denials     `json:"denied_lately,omitempty"`   // of those that are among the most denied keys of their zones
	Zones  int           `json:"zones"`                     // number of zones that were searched
	Partly []string      `json:"partly_searched,omitempty"` // zones whose keys have more parts: only their most frequent keys were searched, with log_key
}

// Denials are those of a key in about the last minutes.
type Denials struct {
	Zone  string `json:"zone"`            // name of the zone
	Key   string `json:"key"`             // hash of the key
	Times uint64 `json:"times"`           // estimated count
	Cause string `json:"cause,omitempty"` // why it was denied the last time
}

// Top is the answer of GET /rate_limit/zones/<zone>/top: the most frequent keys of a zone
// in this instance.
type Top struct {
	Fleet  *Fleet     `json:"fleet,omitempty"`       // with ?fleet: all instances, of which these are the keys
	Zone   string     `json:"zone"`                  // name of the zone
	Busy   []topk.Hit `json:"busiest"`               // by requests
	Denied []topk.Hit `json:"most_denied"`           // by denials
	Costly []topk.Hit `json:"most_costly,omitempty"` // by cost, of a zone whose responses tell it
}

// Tops is the answer of GET /rate_limit/top: the most frequent keys of every zone that has met
// requests.
type Tops struct {
	Fleet *Fleet `json:"fleet,omitempty"` // with ?fleet: all instances, of which these are the keys
	Zones []Top  `json:"zones"`           // ordered by the requests of their busiest keys
}

// Spend is the answer of GET /rate_limit/zones/<zone>/spend: what requests to a zone with group_by
// cost in the end, since the process started.
type Spend struct {
	Fleet  *Fleet              `json:"fleet,omitempty"` // with ?fleet: all instances, of which these are the sums
	Zone   string              `json:"zone"`            // name of the zone
	Unit   string              `json:"unit"`            // what the costs count
	By     []string            `json:"group_by"`        // parts of group_by
	All    uint64              `json:"cost"`            // sum of all groups
	Groups []metrics.GroupCost `json:"groups"`          // greatest first
}

// Spends is the answer of GET /rate_limit/spend: what requests to all zones with group_by cost.
type Spends struct {
	Fleet *Fleet  `json:"fleet,omitempty"` // with ?fleet: all instances, of which these are the sums
	Zones []Spend `json:"zones"`           // ordered by name
}

// Request describes a request to POST /rate_limit/explain.
type Request struct {
	Method   string                  `json:"method"`    // Default: GET.
	URL      string                  `json:"url"`       // with scheme and host
	ClientIP string                  `json:"client_ip"` // as Caddy would determine it
	RemoteIP string                  `json:"remote_ip"` // Default: client_ip.
	Headers  map[string]config.Parts `json:"headers"`   // by name
	Body     string                  `json:"body"`      // for keys and costs with {body.<name>}
	Proto    string                  `json:"proto"`     // http/1.0, http/1.1, http/2 or http/3. Default: http/2 with TLS, else http/1.1.
}

// Undecided is the decision about a request of which a matcher on its way failed.
const Undecided = "undecided"

// Explanation is the answer of POST /rate_limit/explain: the decision about a request.
type Explanation struct {
	Decision string    `json:"decision"`              // allowed, denied, undecided if a matcher failed, or none if no zone applies
	Zone     string    `json:"zone,omitempty"`        // first zone that denies
	Rule     string    `json:"rule,omitempty"`        // first rule of that zone that denies
	Cause    string    `json:"cause,omitempty"`       // why it denies
	RetryIn  *float64  `json:"retry_after,omitempty"` // longest time until a zone admits
	Response string    `json:"response,omitempty"`    // handler whose response decides whether the request reaches that zone, by handle_response
	FromFile bool      `json:"from_file,omitempty"`   // whether this is from a configuration that does not run: nothing is counted
	Handlers []Handler `json:"handlers"`              // handlers that the request would reach, in order
}

// Handler is a rate_limit handler that a request would reach.
type Handler struct {
	Server   string        `json:"server"`                 // name of its server
	Response string        `json:"response,omitempty"`     // handler whose response decides whether the request reaches it, by handle_response
	Zones    []limiter.Key `json:"zones"`                  // zones that apply
	Without  []string      `json:"not_matching,omitempty"` // zones that do not apply
	NotRun   []string      `json:"not_run,omitempty"`      // handlers before it that are not run, as they need more than the request: what they change is unknown
	Error    string        `json:"error,omitempty"`        // error of a matcher
}
