package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/key"
)

// Distributed is how github.com/mholt/caddy-ratelimit shares its counts. Here
// it only says that a Redis must be configured.
type Distributed struct {
	// Read and ignored: every decision is made in Redis.
	ReadInterval caddy.Duration `json:"read_interval,omitempty"`

	// Read and ignored: every decision is made in Redis.
	WriteInterval caddy.Duration `json:"write_interval,omitempty"`

	// Read and ignored: every key in Redis expires by itself.
	PurgeAge caddy.Duration `json:"purge_age,omitempty"`
}

// ErrNotShared is the error of distributed without a store.
var ErrNotShared = errors.New("distributed: no Redis is configured to share the counts through: write `store redis <address>` into the global option rate_limit, such as store redis localhost:6379")

// SafeName is a zone's name with _ in place of what a name cannot have.
func SafeName(name string) string {
	safe := strings.Map(func(r rune) rune {
		if r == '-' || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, name)
	if safe == "" || safe == "exceeded" {
		safe += "_"
	}
	return safe[:min(len(safe), maxName)]
}

// Inherited reports whether the zone has the other plugin's events and window.
func (z *Zone) Inherited() bool { return z.MaxEvents != 0 || z.Window != 0 }

// Native is the zone in this plugin's own words. Nil is left to [Check].
func (z *Zone) Native() (*Zone, error) {
	if z == nil {
		return nil, nil //nolint:nilnil // Check has an error for it
	}
	c := *z
	if err := c.ownKey(); err != nil {
		return nil, err
	}
	if !z.Inherited() {
		return &c, nil
	}
	switch {
	case len(z.Rules) > 0:
		return nil, errors.New("events and window beside rule: want one or the other")
	case z.Algorithm != "":
		return nil, fmt.Errorf("events and window beside algorithm %s: they are a sliding_log: want a rule, such as rule 100/1m %s", z.Algorithm, z.Algorithm)
	case z.MaxEvents < 1:
		return nil, fmt.Errorf("events %d: want at least 1, such as events 100 beside window 1m", z.MaxEvents)
	case z.Window <= 0:
		return nil, errors.New("events without a window: want both, such as events 100 and window 1m")
	}
	c.Rules = []*Rule{{Limit: z.MaxEvents, Window: z.Window, AlgorithmRaw: json.RawMessage(`{"name":"sliding_log"}`)}}
	c.MaxEvents, c.Window = 0, 0
	c.KeyMissing = cmp.Or(c.KeyMissing, key.MissingShare)
	c.NoHeaders = true
	c.takeWhole()
	return &c, nil
}

// takeWhole makes addresses count whole where no prefix was said. To the other
// plugins a prefix of 0 is none.
func (z *Zone) takeWhole() {
	for p, bits := range map[**int]int{&z.IPv4Prefix: 32, &z.IPv6Prefix: 128} {
		if *p == nil || **p == 0 && z.NoHeaders {
			*p = &bits
		}
	}
}

// everyone is the key of a zone without one in the other plugin's words.
const everyone = "everyone"

// foreignKey matches {remote.host}, {remote.ip}, {remote.port}, {remote.host_prefix.N},
// {remote.ip_prefix.N} and {body.x}.
var foreignKey = regexp.MustCompile(`^\{(?:remote\.(host|ip|port)|remote\.(host|ip)_prefix\.(\d{1,3})|body\.([^{}]+))\}$`)

// ownKey writes the key's parts as Caddy's placeholders.
func (z *Zone) ownKey() error {
	if z.Inherited() && (len(z.Key) == 0 || len(z.Key) == 1 && z.Key[0] == "") {
		z.Key = Parts{everyone}
		return nil
	}
	z.Key = slices.Clone(z.Key)
	for i, part := range z.Key {
		m := foreignKey.FindStringSubmatch(part)
		if m == nil {
			// Caddy has no placeholders of this name: it would always be empty.
			if strings.Contains(part, "{remote.") {
				return fmt.Errorf("key %s: want {remote.host}, {remote.ip}, {remote.port}, {remote.host_prefix.N} or {remote.ip_prefix.N}, and nothing beside it", part)
			}
			continue
		}
		switch cmp.Or(m[1], m[2]) {
		case "ip":
			z.Key[i] = "{client_ip}"
		case "host":
			z.Key[i] = "{http.request.remote.host}"
		case "port":
			z.Key[i] = "{http.request.remote.port}"
			continue
		default:
			z.Key[i] = "{http.request.body." + m[4] + "}"
			continue
		}
		if m[3] != "" {
			if err := z.cutAt(part, m[3]); err != nil {
				return err
			}
		}
		z.takeWhole()
	}
	return nil
}

// cutAt sets both prefixes to those of {remote.ip_prefix.N}.
func (z *Zone) cutAt(part, prefix string) error {
	n, err := strconv.Atoi(prefix)
	if err != nil || n > 128 {
		return fmt.Errorf("key %s: want a prefix of 0 to 128", part)
	}
	if z.IPv4Prefix != nil || z.IPv6Prefix != nil {
		return fmt.Errorf("key %s: its prefix stands beside another: want ipv4_prefix and ipv6_prefix alone, with the key {client_ip} or {remote_host}", part)
	}
	n4 := min(n, 32)
	z.IPv4Prefix, z.IPv6Prefix = &n4, &n
	return nil
}

// Believes reports whether the key was written for a plugin that believes any
// X-Forwarded-For.
func (z *Zone) Believes() bool {
	return slices.ContainsFunc(z.Key, func(part string) bool { return strings.HasPrefix(part, "{remote.ip") })
}

// SimpleRate matches the rates of github.com/RussellLuo/caddy-ext/ratelimit.
var SimpleRate = regexp.MustCompile(`^\d+r/[sm]$`)

// MissingIn is what that plugin does with a request that lacks the key part: it lets
// it pass. An address is never missing but on a unix socket.
func MissingIn(part string) string {
	switch strings.Trim(Expand(part), "{}") {
	case "remote.ip", "remote.host", "http.request.remote.host", key.ClientIPPlaceholder:
		return ""
	}
	if strings.Contains(part, "_prefix.") {
		return ""
	}
	return key.MissingSkip
}
