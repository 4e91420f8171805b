package diana

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// hashOf returns a hash of a part of the configuration.
func hashOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte(err.Error())
	}
	sum := sha256.Sum256(text)
	return string(sum[:])
}

// fingerprint returns a hash of the configuration of the app. Passwords do not enter it:
// a short hash that everybody sees would help to guess them.
func (a *App) fingerprint() string {
	public := App{MaxKeys: a.MaxKeys, Headers: a.Headers, RulesRaw: placeOf(a.RulesRaw)}
	for _, raw := range a.StoresRaw {
		if s, err := parseStoreJSON(raw); err == nil {
			public.StoresRaw = append(public.StoresRaw, caddyconfig.JSON(s.public(), nil))
		}
	}
	return hashOf(&public)
}

// placeOf returns where a rule source reads its document, without the tokens it needs for it, which
// the query of a URL may have.
func placeOf(raw json.RawMessage) json.RawMessage {
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

// configHash returns a short hash of the rate limits of the configuration, whatever the
// order in which its servers were provisioned.
func (a *App) configHash() string {
	parts := slices.Clone(a.parts)
	slices.Sort(parts)
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return hex.EncodeToString(sum[:4])
}
