package limiter

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net/http"

	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/stores"
)

// maxBody is how much of a body is compared, in bytes.
const maxBody = 64 << 10

// addFingerprint enters the check of a request that may be a duplicate.
func (q *request) addFingerprint(z *zoneResult, set *ruleSet, group uint32) {
	if fp, ok := fingerprint(z.zone.store.Hasher, q.r, z.key, z.zone.PreventDuplicates.Body); ok {
		z.duplicate = q.count(z, set.counter, fp, z.key, group, 1)
	}
}

// deniesDuplicate reports whether a zone denies a request because it is a duplicate.
func (d *decision) deniesDuplicate(z *zoneResult) bool {
	return z.duplicate >= 0 && !d.check.Zones[z.duplicate].Admits
}

// keepFingerprint keeps the fingerprint of a request that was admitted.
func (q *request) keepFingerprint(z *zoneResult) {
	if z.duplicate >= 0 && q.check.Zones[z.duplicate].Charged {
		z.zone.fingerprints.add(z.key, q.check.Zones[z.duplicate].Key)
	}
}

// fingerprint returns what equal requests of a zone key have in common: the key,
// method, host, path and query, and with body the body's hash. It returns false for a
// request that equals no other.
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

// hashBody reads a request's body, up to maxBody, and puts it back.
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

// restoredBody is a body whose beginning was read and is read again.
type restoredBody struct {
	io.Reader
	io.Closer
}

type errorReader struct{ err error }

func (e errorReader) Read([]byte) (int, error) {
	if e.err == nil {
		return 0, errors.New("reading the body failed")
	}
	return 0, e.err
}
