package cli

import (
	"time"

	"github.com/dianalimiter/diana/internal/metrics"
)

// Fleet describes the instances that share a store, in answers about all of them.
type Fleet struct {
	Instances int64    `json:"instances"`        // number of live instances
	Answered  int      `json:"answered"`         // number of those whose figures are in the sums
	Alone     bool     `json:"alone,omitempty"`  // whether the instance that answers sees only itself
	Why       string   `json:"why,omitempty"`    // why it does
	Silent    int64    `json:"silent,omitempty"` // number of live instances of which nothing is known
	Members   []Member `json:"members"`          // the instance that answers first, then by host
}

// Member is an instance of a fleet.
type Member struct {
	Instance
	ID         string           `json:"id"`                      // of its process
	Self       bool             `json:"self,omitempty"`          // whether it is the answering instance
	Seen       time.Time        `json:"seen"`                    // when it last wrote its figures
	Missing    bool             `json:"missing,omitempty"`       // whether it does not write them any more: they are not in the sums
	Mode       string           `json:"mode"`                    // shared, fallback, allow or deny
	ModeSince  time.Time        `json:"mode_since"`              // start of the mode
	OtherBuild bool             `json:"other_version,omitempty"` // whether its versions differ from the answering instance's
	OtherRules bool             `json:"other_config,omitempty"`  // likewise the hash of its rate limits
	Requests   metrics.Requests `json:"requests"`                // since its process started
	Zones      []MemberZone     `json:"zones,omitempty"`         // only what instances write for each other has them
}

// InstancePlaces is what the places of a zone with in_flight adaptive are in an instance.
type InstancePlaces struct {
	metrics.PlaceState
	ID   string `json:"id"`   // of its process
	Host string `json:"host"` // its host name
}

// MemberZone is what an instance counts of a zone.
type MemberZone struct {
	Zone         string            `json:"zone"`                    // empty: the zones for which there was no room
	Decisions    map[string]uint64 `json:"decisions"`               // by outcome, without zeros
	Denied       map[string]uint64 `json:"denied,omitempty"`        // denials by rule
	Cost         uint64            `json:"settled_cost,omitempty"`  // what requests cost by their responses
	ShadowDenied map[string]uint64 `json:"shadow_denied,omitempty"` // denials by rule that were only reported
	Top          *Top              `json:"top,omitempty"`           // its most frequent keys

	Places *metrics.PlaceState `json:"places,omitempty"` // with in_flight adaptive: its limit there, and what is in flight and waits

	Groups []metrics.GroupCost `json:"groups,omitempty"` // its costs by group
}
