package admin

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/dianalimiter/diana/internal/clock"
	"github.com/dianalimiter/diana/rules"
)

// zonesNow is the zones without their counts, at an instant.
type zonesNow struct {
	step    int64                      // of the history
	text    map[string]json.RawMessage // by name
	version string
}

// zonesNow returns the zones at this step. All streams send at the same instants, and build them
// once.
func (in *Instance) zonesNow() *zonesNow {
	in.mu.Lock()
	defer in.mu.Unlock()
	step := clock.Now() / streamStep.Microseconds()
	if in.now != nil && in.now.step == step {
		return in.now
	}
	now := &zonesNow{step: step, text: make(map[string]json.RawMessage)}
	for _, z := range in.Registry.Zones() {
		if now.text[z.Name] != nil {
			continue
		}
		// Its options were JSON when it was loaded.
		if text, err := json.Marshal(in.answerZone(z)); err == nil {
			now.text[z.Name] = text
		}
	}
	all, _ := json.Marshal(now.text) // it is JSON already; in the order of the names
	now.version, in.now = rules.Fingerprint(string(all)), now
	return now
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
