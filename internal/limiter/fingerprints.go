package limiter

import (
	"sync"

	"github.com/dianalimiter/diana/internal/pool"
	"github.com/dianalimiter/diana/internal/stores"
)

// fingerprints is a ring of the fingerprints of the requests last admitted by a zone with
// prevent_duplicates in this instance. It maps them to their zone key, which a reset
// needs and a fingerprint does not contain. It survives reloads. The zero value is ready
// for use.
type fingerprints struct {
	mu   sync.Mutex
	list []keyPrint // maxFingerprints at most
	next int        // index of the oldest, if the ring is full
}

// recent are the fingerprints of the zones in use.
var recent = pool.New[*fingerprints]("fingerprints") // by zoneID

// takeFingerprints returns the fingerprints of a zone.
func takeFingerprints(refs *pool.References, id zoneID) *fingerprints {
	return recent.Take(refs, id, func() *fingerprints { return new(fingerprints) })
}

type keyPrint struct{ key, fingerprint stores.Key }

const maxFingerprints = 16_384

// Destruct implements caddy.Destructor.
func (*fingerprints) Destruct() error { return nil }

func (f *fingerprints) add(k, fp stores.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.list) < maxFingerprints {
		f.list = append(f.list, keyPrint{k, fp})
		return
	}
	f.list[f.next] = keyPrint{k, fp}
	f.next = (f.next + 1) % maxFingerprints
}

// of returns the fingerprints of a key.
func (f *fingerprints) of(k stores.Key) (list []stores.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.list {
		if x.key == k {
			list = append(list, x.fingerprint)
		}
	}
	return list
}
