package diana

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net/http"

	"github.com/dianalimiter/diana/internal/stores"
)

// maxBody is how much of a body is compared.
const maxBody = 64 << 10

// duplicateKey is what equal requests of one zone key have in common. ok is
// false for a request that equals no other.
func (z *zone) duplicateKey(q *request, key stores.Key) (twin stores.Key, ok bool) {
	r := q.r
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return twin, false
	}
	b := make([]byte, 0, 256)
	b = binary.BigEndian.AppendUint64(b, key.Hi)
	b = binary.BigEndian.AppendUint64(b, key.Lo)
	for _, s := range []string{r.Method, r.Host, r.URL.EscapedPath(), r.URL.RawQuery} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	if z.PreventDuplicates.Body {
		sum, ok := hashBody(r)
		if !ok {
			return twin, false
		}
		b = append(b, sum[:]...)
	}
	return z.hasher.key(b), true
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
		rest = errorReader{err} // who reads the body is told what went wrong
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
