package limiter

import (
	"sync"

	"github.com/dianalimiter/diana/internal/pool"
	"github.com/dianalimiter/diana/internal/stores"
)

// fingerprints are those of the requests that this instance admitted last to a zone
// with prevent_duplicates, by zone key, so that a reset finds them: a fingerprint
// does not tell its key. They outlive a reload. The zero value is ready.
type fingerprints struct {
	mu   sync.Mutex
	list []keyPrint // of maxFingerprints at most
	next int        // the oldest, when there are so many
}

// recent are the fingerprints of the zones that run.
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
