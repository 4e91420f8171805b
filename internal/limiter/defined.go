package limiter

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// defined is the definition of a zone, the place where it stands, and a limiter that has it.
type defined struct {
	definition, place string
	limiter           *Limiter
}

// withLease follows a definition with which some requests count otherwise than without a lease.
const withLease = " with a lease"

// unlike says where two definitions stand, and in which options they differ.
func (d defined) unlike(other defined) string {
	where := d.place + " and " + other.place
	if d.place == other.place {
		where = d.place
	}
	var differ []string
	one, two := d.options(), other.options()
	for _, name := range slices.Sorted(maps.Keys(one)) {
		if !bytes.Equal(one[name], two[name]) {
			differ = append(differ, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(two)) {
		if one[name] == nil {
			differ = append(differ, name)
		}
	}
	return where + ", which differ in " + strings.Join(differ, ", ")
}

// options returns the options of a definition, as JSON.
func (d defined) options() map[string]json.RawMessage {
	text, leased := strings.CutSuffix(d.definition, withLease)
	options := make(map[string]json.RawMessage)
	_ = json.Unmarshal([]byte(text), &options) // it was encoded here
	if leased {
		options["lease"] = json.RawMessage("true")
	}
	return options
}
