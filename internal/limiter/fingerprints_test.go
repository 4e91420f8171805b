package limiter

import (
	"testing"

	"github.com/dianalimiter/diana/internal/stores"
)

// TestFingerprintsAreBounded adds more fingerprints than are kept: the last ones
// remain.
func TestFingerprintsAreBounded(t *testing.T) {
	var list fingerprints
	key := func(i int) stores.Key { return stores.Key{Hi: uint64(i), Lo: 1} }
	for i := range maxFingerprints + 10 {
		list.add(key(i), key(-i))
	}
	for i, want := range map[int]int{0: 0, 9: 0, 10: 1, maxFingerprints: 1, maxFingerprints + 9: 1, maxFingerprints + 10: 0} {
		if got := list.of(key(i)); len(got) != want || want > 0 && got[0] != key(-i) {
			t.Errorf("key %d: fingerprints %v, want %d", i, got, want)
		}
	}
	if len(list.list) != maxFingerprints {
		t.Errorf("%d fingerprints are kept, want the maximum", len(list.list))
	}
}
