package running

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// Hash is a hash of the rate limits of a configuration, by which instances see whether theirs are
// equal.
type Hash struct{ parts []string }

// Add adds a part of the configuration, in any order.
func (h *Hash) Add(part any) {
	text, err := json.Marshal(part)
	if err != nil {
		text = []byte(err.Error())
	}
	sum := sha256.Sum256(text)
	h.parts = append(h.parts, string(sum[:]))
}

// String returns the hash, which is short.
func (h *Hash) String() string {
	parts := slices.Clone(h.parts)
	slices.Sort(parts)
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return hex.EncodeToString(sum[:4])
}

// PlaceOf returns where a rule source reads its document, without the tokens it needs for it, which
// the query of a URL may have.
func PlaceOf(raw json.RawMessage) json.RawMessage {
	var place struct {
		Source string `json:"source,omitempty"`
		Key    string `json:"key,omitempty"`
		Path   string `json:"path,omitempty"`
		URL    string `json:"url,omitempty"`
	}
	if json.Unmarshal(raw, &place) != nil {
		return nil
	}
	u, err := url.Parse(place.URL)
	if err != nil {
		u = new(url.URL)
	}
	place.URL = u.Host + u.Path
	text, _ := json.Marshal(place)
	return text
}
