package admin

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
)

// zonesNow is the zones without their counts, at an instant.
type zonesNow struct {
	step    int64 // of the history
	names   []string
	text    map[string][]byte // JSON by name
	version string
}

// snapshot is the zones of a configuration as the last stream sent them. All streams send at
// the same instants, and build it once.
type snapshot struct {
	mu  sync.Mutex
	now *zonesNow // nil: none was sent
}

// at returns the zones at a step. build returns their JSON by name.
func (s *snapshot) at(step int64, build func() map[string][]byte) *zonesNow {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil && s.now.step == step {
		return s.now
	}
	now := &zonesNow{step: step, text: build()}
	now.names = slices.Sorted(maps.Keys(now.text))
	sum := fnv.New128a()
	for _, name := range now.names {
		_ = binary.Write(sum, binary.LittleEndian, uint64(len(now.text[name]))) // a hash never fails
		sum.Write(now.text[name])
	}
	now.version = hex.EncodeToString(sum.Sum(nil))
	s.now = now
	return now
}

// since returns the zones that differ from those before, and the names of those that are
// gone.
func (n *zonesNow) since(before *zonesNow) (changed []json.RawMessage, gone []string) {
	if n == before || n.version == before.version {
		return nil, nil
	}
	for _, name := range n.names {
		if !bytes.Equal(n.text[name], before.text[name]) {
			changed = append(changed, n.text[name])
		}
	}
	for _, name := range before.names {
		if n.text[name] == nil {
			gone = append(gone, name)
		}
	}
	return changed, gone
}
