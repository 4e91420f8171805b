package limiter

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"net/http"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/body"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// checks returns the zone checks of a zone: of its rules, and of prevent_duplicates; nil: it has none.
func (z *zoneResult) checks() [2]*stores.ZoneCheck {
	return [...]*stores.ZoneCheck{z.rules, z.duplicate}
}

// deniesDuplicate reports whether a zone denies the request as a duplicate.
func (z *zoneResult) deniesDuplicate() bool { return z.duplicate != nil && !z.duplicate.Admits }

// reportDuplicates logs, at most once per minute and zone, that the zone is full of fingerprints.
func (q *request) reportDuplicates(z *zoneResult) {
	if z.duplicate.Overflowed && z.zone.common.duplicateLog.Next(q.now()) {
		q.l.o.Logger.Warn("the zone is full: further requests are not compared by prevent_duplicates",
			zap.String("zone", z.zone.Name), zap.String("advice", "raise max_keys"))
	}
}

// addFingerprint adds the zone check of prevent_duplicates, unless the request cannot be
// a duplicate.
func (q *request) addFingerprint(z *zoneResult, set *ruleSet, group uint32) {
	if fp, ok := q.fingerprint(z); ok {
		z.duplicate = q.count(z, set.counter, fp, group, 1)
	}
}

// peekDuplicate adds whether the request would be denied as a duplicate. Its retry is the longer
// one, as the decision has it.
func (p *Key) peekDuplicate(ctx context.Context, z *zoneResult) {
	c := *z.duplicate
	c.Results = nil // as of the rules
	mode, _ := stores.Peek(ctx, z.zone.store.of(c.Tag), &c)
	if p.Mode = mode.String(); c.Admits && mode != stores.ModeDeny {
		return
	}
	denied := p.Rule != ""
	switch {
	case denied:
	case len(c.Results) == 0:
		p.denyWithoutStore()
	default:
		p.deny(labelDuplicates, metrics.CauseDuplicate)
	}
	if retry := retryOf(waitOf(&c)); retry > 0 && (!denied || p.RetryIn != nil && *p.RetryIn < InSeconds(retry)) {
		p.RetryIn = new(InSeconds(retry))
	}
}

// fingerprint returns a hash of the zone key, method, host, path and query of a request,
// and with body also of its body. Host and path may be spelt in any way. It returns false for
// a request that is never a duplicate.
func (q *request) fingerprint(z *zoneResult) (fp stores.Key, ok bool) {
	r, k := q.r, z.key
	if !config.Unsafe(r.Method) {
		return fp, false
	}
	b := make([]byte, 0, 256)
	b = binary.BigEndian.AppendUint64(b, k.Hi)
	b = binary.BigEndian.AppendUint64(b, k.Lo)
	for _, s := range []string{r.Method, key.Host(r), key.Path(r), r.URL.RawQuery} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	if z.zone.PreventDuplicates.Body {
		sum, ok := hashBody(q.w, r, q.l.maxBody)
		if !ok {
			return fp, false
		}
		b = append(b, sum[:]...)
	}
	return z.zone.store.Hasher.Hash(b), true
}

// hashBody returns the hash of a request's body. It returns false if the body is larger than size
// or cannot be read, or if its length is unknown: it may be a stream that does not end
// before the response.
func hashBody(w http.ResponseWriter, r *http.Request, size int64) (sum [sha256.Size]byte, ok bool) {
	if r.ContentLength < 0 {
		return sum, false
	}
	b := body.Read(w, r, size, false)
	if b == nil {
		return sha256.Sum256(nil), true
	}
	data, ok := b.Bytes()
	return sha256.Sum256(data), ok
}
