package admin

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// zonesNow is the zones without their counts, at an instant.
type zonesNow struct {
	step    int64                      // of the history
	text    map[string]json.RawMessage // by name
	version string
}

// since returns the zones that differ from those before, and the names of those that are
// gone.
func (n *zonesNow) since(before *zonesNow) (changed []json.RawMessage, gone []string) {
	if n == before || n.version == before.version {
		return nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(n.text)) {
		if !bytes.Equal(n.text[name], before.text[name]) {
			changed = append(changed, n.text[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before.text)) {
		if n.text[name] == nil {
			gone = append(gone, name)
		}
	}
	return changed, gone
}
