package limiter

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net/http"

	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/stores"
)

// maxBody is the size of the largest body that is compared, in bytes.
const maxBody = 64 << 10

// addFingerprint adds the zone check of prevent_duplicates, unless the request cannot be
// a duplicate.
func (q *request) addFingerprint(z *zoneResult, set *ruleSet, group uint32) {
	if fp, ok := fingerprint(z.zone.store.Hasher, q.r, z.key, z.zone.PreventDuplicates.Body); ok {
		z.duplicate = q.count(z, set.counter, fp, z.key, group, 1)
	}
}

// deniesDuplicate reports whether a zone denies the request as a duplicate.
func (d *decision) deniesDuplicate(z *zoneResult) bool {
	return z.duplicate >= 0 && !d.check.Zones[z.duplicate].Admits
}

// keepFingerprint stores the fingerprint of an admitted request, so that a reset of its
// key finds it.
func (q *request) keepFingerprint(z *zoneResult) {
	if z.duplicate >= 0 && q.check.Zones[z.duplicate].Charged {
		z.zone.fingerprints.add(z.key, q.check.Zones[z.duplicate].Key)
	}
}

// fingerprint returns a hash of the zone key, method, host, path and query of a request,
// and with body also of its body. It returns false for a request that is never a
// duplicate.
func fingerprint(h key.Hasher, r *http.Request, k stores.Key, body bool) (fp stores.Key, ok bool) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return fp, false
	}
	b := make([]byte, 0, 256)
	b = binary.BigEndian.AppendUint64(b, k.Hi)
	b = binary.BigEndian.AppendUint64(b, k.Lo)
	for _, s := range []string{r.Method, r.Host, r.URL.EscapedPath(), r.URL.RawQuery} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	if body {
		sum, ok := hashBody(r)
		if !ok {
			return fp, false
		}
		b = append(b, sum[:]...)
	}
	return h.Hash(b), true
}

// hashBody returns the hash of a request's body and restores the body. It returns false
// if the body exceeds maxBody or cannot be read.
func hashBody(r *http.Request) (sum [sha256.Size]byte, ok bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return sha256.Sum256(nil), true
	}
	if r.ContentLength > maxBody {
		return sum, false
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	rest := io.Reader(r.Body)
	if err != nil {
		rest = errorReader{err} // the next handler that reads the body gets the error
	}
	r.Body = &restoredBody{io.MultiReader(bytes.NewReader(b), rest), r.Body}
	if err != nil || len(b) > maxBody {
		return sum, false
	}
	return sha256.Sum256(b), true
}

// restoredBody is a body whose beginning was read already.
type restoredBody struct {
	io.Reader
	io.Closer
}

type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.err }
