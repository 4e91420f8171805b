package diana

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
)

// What configurations of the other plugins that are called rate_limit have, and
// how it is said in this plugin's own words. Handlers and zones are brought to
// these before anything else looks at them.

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

var errNotShared = errors.New("distributed: no Redis is configured to share the counts through: write `store redis <address>` into the global option rate_limit, such as store redis localhost:6379")

// allZones are the handler's zones in this plugin's own words, in the order in
// which a denial is looked for.
func (h *Handler) allZones() ([]*Zone, error) {
	all := slices.Clone(h.Zones)
	for _, name := range h.inheritedNames() {
		z := h.RateLimits[name]
		if z == nil {
			return nil, fmt.Errorf("rate_limits: zone %q null: want an object with max_events and window", name)
		}
		named := *z
		if z.Name != "" && z.Name != name {
			return nil, fmt.Errorf("rate_limits: zone %q has the name %q too: want one", name, z.Name)
		}
		if named.Name = safeName(name); named.Name != name {
			h.app.warn(h.logger, "the zone's name has characters that a name cannot have here: it is called otherwise",
				zap.String("name", name), zap.String("zone", named.Name))
		}
		all = append(all, &named)
	}
	one, err := h.oneZone()
	if err != nil {
		return nil, err
	}
	if one != nil {
		all = append(all, one)
	}
	for i, z := range all {
		if z == nil {
			continue
		}
		if all[i], err = z.own(); err != nil {
			return nil, fmt.Errorf("zone %s: %w", z.Name, err)
		}
		if z.believes() {
			h.app.warn(h.logger, "{remote.ip} is read as {client_ip}: the plugin that it comes from believed any X-Forwarded-For, here only trusted_proxies are believed",
				zap.String("zone", z.Name))
		}
	}
	return all, nil
}

// checkForeign checks and tells what else of the other plugins' options there is.
func (h *Handler) checkForeign() error {
	ignored := func(option, why string, given bool) {
		if given {
			h.app.warn(h.logger, option+" is ignored: "+why)
		}
	}
	ignored("sweep_interval", "what is over is forgotten without being swept", h.SweepInterval != 0)
	ignored("storage", "counts are shared through `store redis` in the global option rate_limit", len(h.Storage) > 0)
	if d := h.Distributed; d != nil {
		const why = "every decision is made in Redis"
		ignored("read_interval", why, d.ReadInterval != 0)
		ignored("write_interval", why, d.WriteInterval != 0)
		ignored("purge_age", "every key in Redis expires by itself", d.PurgeAge != 0)
		if len(h.app.shared) == 0 {
			return errNotShared
		}
	}
	return checkRejectStatus(h.RejectStatus)
}

func checkRejectStatus(s int) error {
	if s != 0 && s != http.StatusOK && (s < 400 || s > 599) {
		return fmt.Errorf("reject_status %d: want 400 to 599, or 200", s)
	}
	return nil
}

// warn logs a warning once for all handlers of a configuration that give the
// same cause.
func (a *App) warn(l *zap.Logger, msg string, fields ...zap.Field) {
	cause := msg
	for _, f := range fields {
		cause += "\n" + f.String
	}
	if !a.warned[cause] {
		a.warned[cause] = true
		l.Warn(msg, fields...)
	}
}

// inheritedNames are those of RateLimits in the order in which that plugin
// decides them: the one that admits most first.
func (h *Handler) inheritedNames() []string {
	permits := func(name string) float64 {
		z := h.RateLimits[name]
		if z == nil || z.Window <= 0 {
			return 0
		}
		return float64(z.MaxEvents) / float64(z.Window)
	}
	return slices.SortedFunc(maps.Keys(h.RateLimits), func(a, b string) int {
		return cmp.Or(cmp.Compare(permits(b), permits(a)), strings.Compare(a, b))
	})
}

// safeName is a zone's name with _ in place of what a name cannot have.
func safeName(name string) string {
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

// inherited says whether the zone has the other plugin's events and window.
func (z *Zone) inherited() bool { return z.MaxEvents != 0 || z.Window != 0 }

// own is the zone in this plugin's own words. Nil is left to [newZone].
func (z *Zone) own() (*Zone, error) {
	if z == nil {
		return nil, nil //nolint:nilnil // newZone has an error for it
	}
	c := *z
	if err := c.ownKey(); err != nil {
		return nil, err
	}
	if !z.inherited() {
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
	c.KeyMissing = orDefault(c.KeyMissing, missingShare)
	c.quiet = true
	c.takeWhole()
	return &c, nil
}

// takeWhole makes addresses count whole where no prefix was said. To the other
// plugins a prefix of 0 is none.
func (z *Zone) takeWhole() {
	for p, bits := range map[**int]int{&z.IPv4Prefix: 32, &z.IPv6Prefix: 128} {
		if *p == nil || **p == 0 && z.quiet {
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
	if z.inherited() && (len(z.Key) == 0 || len(z.Key) == 1 && z.Key[0] == "") {
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

// believes says whether the key was written for a plugin that believes any
// X-Forwarded-For.
func (z *Zone) believes() bool {
	return slices.ContainsFunc(z.Key, func(part string) bool { return strings.HasPrefix(part, "{remote.ip") })
}

// simpleRate matches the rates of github.com/RussellLuo/caddy-ext/ratelimit.
var simpleRate = regexp.MustCompile(`^\d+r/[sm]$`)

// missingIn is what that plugin does with a request that lacks the key: it lets
// it pass. An address is never missing but on a unix socket.
func missingIn(key string) string {
	switch strings.Trim(expandShorthands(key), "{}") {
	case "remote.ip", "remote.host", "http.request.remote.host", clientIPVar:
		return ""
	}
	if strings.Contains(key, "_prefix.") {
		return ""
	}
	return missingSkip
}

// oneZone is the zone that key and rate make; nil without them.
func (h *Handler) oneZone() (*Zone, error) {
	if h.Key == "" && h.Rate == "" && h.ZoneSize == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	if h.Key == "" || h.Rate == "" {
		return nil, fmt.Errorf("key %q with rate %q: want both, such as {query.id} and 10r/s", h.Key, h.Rate)
	}
	limit, window, err := parseRate(h.Rate)
	if err != nil {
		return nil, err
	}
	z := &Zone{
		Key: Parts{h.Key}, KeyMissing: missingIn(h.Key), MaxKeys: h.ZoneSize,
		Rules: []*Rule{{Limit: limit, Window: caddy.Duration(window)}},
	}
	z.Name = h.app.autoName(nameOf(nil, z, false))
	return z, nil
}

// autoName numbers automatic names that are given here and not by the
// Caddyfile, because each such handler has counts of its own.
func (a *App) autoName(name string) string {
	a.autoNames[name]++
	if n := a.autoNames[name]; n > 1 {
		name += "-" + strconv.Itoa(n)
	}
	return name
}
