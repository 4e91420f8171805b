package limiter

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/stores"
)

// maxBody is how much of a body is compared, in bytes.
const maxBody = 64 << 10

// fingerprint returns what equal requests of a zone key have in common: the key,
// method, host, path and query, and with body the body's hash. It returns false for a
// request that equals no other.
func fingerprint(h key.Hasher, r *http.Request, k stores.Key, body bool) (print stores.Key, ok bool) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return print, false
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
			return print, false
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

// fingerprints are those of the requests that this instance admitted last to a zone
// with prevent_duplicates, by zone key, so that a reset finds them: a fingerprint
// does not tell its key. They outlive a reload. The zero value is ready.
type fingerprints struct {
	mu   sync.Mutex
	list []keyPrint // of maxFingerprints at most
	next int        // the oldest, when there are so many
}

type keyPrint struct{ key, print stores.Key }

const maxFingerprints = 16_384

// Destruct implements caddy.Destructor.
func (*fingerprints) Destruct() error { return nil }

func (f *fingerprints) add(k, print stores.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.list) < maxFingerprints {
		f.list = append(f.list, keyPrint{k, print})
		return
	}
	f.list[f.next] = keyPrint{k, print}
	f.next = (f.next + 1) % maxFingerprints
}

// of returns the fingerprints of a key.
func (f *fingerprints) of(k stores.Key) (list []stores.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.list {
		if x.key == k {
			list = append(list, x.print)
		}
	}
	return list
}
