// Package compat replaces the options of other plugins named rate_limit by their equivalents, before
// anything else uses them: github.com/mholt/caddy-ratelimit and github.com/RussellLuo/caddy-ext/ratelimit.
package compat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/key"
)

// NotShared returns the error of distributed without a store.
func NotShared() error {
	return fmt.Errorf("distributed: no Redis is configured to share the counts through: write `store redis <address>` into the global option %s, such as store redis localhost:6379", names.Usual())
}

// HasEvents reports whether a zone has max_events or window, the options of
// github.com/mholt/caddy-ratelimit.
func HasEvents(z *config.Zone) bool { return z.MaxEvents != 0 || z.Window != 0 }

// Normalize returns a zone with the options and placeholders of other plugins
// replaced by their equivalents. It returns nil for nil.
func Normalize(z *config.Zone) (*config.Zone, error) {
	if z == nil {
		return nil, nil //nolint:nilnil // Check returns an error for it
	}
	c := *z
	if err := normalizeKey(&c); err != nil {
		return nil, err
	}
	if !HasEvents(z) {
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
	c.Rules = []*config.Rule{{Limit: z.MaxEvents, Window: config.Window{Duration: time.Duration(z.Window)}, AlgorithmRaw: json.RawMessage(`{"name":"sliding_log"}`)}}
	c.MaxEvents, c.Window = 0, 0
	c.KeyMissing = cmp.Or(c.KeyMissing, key.MissingShare)
	c.KeyRepeated = cmp.Or(c.KeyRepeated, key.RepeatedJoin)
	c.NoHeaders = true
	useWholeAddresses(&c)
	return &c, nil
}

// useWholeAddresses sets the prefixes that are not configured to the full length of an
// address. In a zone with max_events a prefix of 0 counts as not configured, as in the
// plugin it comes from.
func useWholeAddresses(z *config.Zone) {
	for p, bits := range map[**int]int{&z.IPv4Prefix: 32, &z.IPv6Prefix: 128} {
		if *p == nil || **p == 0 && z.NoHeaders {
			*p = &bits
		}
	}
}

// everyone is the key of a zone with max_events and without a key.
const everyone = "everyone"

// compatKey matches {remote.host}, {remote.ip}, {remote.port}, {remote.host_prefix.N},
// {remote.ip_prefix.N} and {body.x}.
var compatKey = regexp.MustCompile(`^\{(?:remote\.(host|ip|port)|remote\.(host|ip)_prefix\.(\d{1,3})|body\.([^{}]+))\}$`)

// normalizeKey replaces the placeholders of other plugins in the key by Caddy's.
func normalizeKey(z *config.Zone) error {
	if HasEvents(z) && (len(z.Key) == 0 || len(z.Key) == 1 && z.Key[0] == "") {
		z.Key = config.Parts{everyone}
		return nil
	}
	z.Key = slices.Clone(z.Key)
	for i, part := range z.Key {
		m := compatKey.FindStringSubmatch(part)
		if m == nil {
			// Caddy has no placeholders of this name: the part would always be empty.
			if strings.Contains(part, "{remote.") {
				return fmt.Errorf("key %s: want {remote.host}, {remote.ip}, {remote.port}, {remote.host_prefix.N} or {remote.ip_prefix.N}, and nothing beside it", part)
			}
			if err := checkFit(config.Expand(part)); err != nil {
				return err
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
			if err := setPrefixes(z, part, m[3]); err != nil {
				return err
			}
		}
		useWholeAddresses(z)
	}
	return nil
}

// setPrefixes sets both prefixes to the N of {remote.ip_prefix.N}.
func setPrefixes(z *config.Zone, part, prefix string) error {
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

// trustsForwardedFor reports whether the key of a zone has a placeholder of a plugin that trusts
// X-Forwarded-For from any client.
func trustsForwardedFor(z *config.Zone) bool {
	return slices.ContainsFunc(z.Key, func(part string) bool { return strings.HasPrefix(part, "{remote.ip") })
}

// SimpleRate matches the rates of github.com/RussellLuo/caddy-ext/ratelimit.
var SimpleRate = regexp.MustCompile(`^\d+r/[sm]$`)

// KeyMissing returns the key_missing that matches what that plugin does with a
// request without the key part: it lets the request pass. The default is kept for
// addresses, which are missing only on Unix sockets.
func KeyMissing(part string) string {
	switch strings.Trim(config.Expand(part), "{}") {
	case "remote.ip", "remote.host", "http.request.remote.host", key.ClientIPPlaceholder:
		return ""
	}
	if strings.Contains(part, "_prefix.") {
		return ""
	}
	return key.MissingSkip
}
