package diana

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/limiter"
)

func init() {
	caddy.RegisterModule(new(QuotaHandler))
}

// QuotaHandler answers a client with the rest of its limits, as JSON, and charges nothing. Each zone
// is that of the key that the client's request has. Zones in shadow, and those that do not limit
// the client, are left out.
type QuotaHandler struct {
	// The names of the zones. Default: all zones whose keys are not the same for everybody.
	Zones []string `json:"zones,omitempty"`

	// quotas looks them up once. Requests may come before the app has started.
	quotas func() (list []limiter.Quota, unknown string)
}

// CaddyModule returns the Caddy module information.
func (*QuotaHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.rate_limit_quota", New: func() caddy.Module { return new(QuotaHandler) }}
}

// Provision implements caddy.Provisioner. The zones are looked up when the app starts, or by the first
// request, since those of other handlers may not be provisioned yet.
func (h *QuotaHandler) Provision(ctx caddy.Context) error {
	v, err := names.App(ctx)
	if err != nil {
		return err
	}
	app := v.(*App)
	app.quotas = append(app.quotas, h)
	h.quotas = sync.OnceValues(func() ([]limiter.Quota, string) { return app.registry.Quotas(h.Zones) })
	return nil
}

// start looks up the zones.
func (h *QuotaHandler) start() error {
	if _, unknown := h.quotas(); unknown != "" {
		return fmt.Errorf("rate_limit_quota: zone %s is not defined: want the name of a zone of this configuration", unknown)
	}
	return nil
}

// quota is what a client may know of a zone.
type quota struct {
	Zone    string      `json:"zone"`
	Unit    string      `json:"unit"`              // "requests", "tokens", or "units" of a cost
	Blocked int64       `json:"blocked,omitempty"` // seconds for which the key is still blocked
	Rules   []quotaRule `json:"rules"`
}

// quotaRule is what a client may know of a rule, in the unit of the zone and in seconds.
type quotaRule struct {
	Rule   string `json:"rule"`
	Limit  int64  `json:"limit"`
	Window int64  `json:"window"`           // of a period, the present one
	Period string `json:"period,omitempty"` // "day", "week", "month" or "year" of the calendar
	Used   int64  `json:"used"`
	Held   int64  `json:"held"` // what is reserved for requests under way
	Left   int64  `json:"left"`
	Reset  int64  `json:"reset"` // until the whole limit is left again
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *QuotaHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return nil
	}
	list, _ := h.quotas()
	zones := make([]quota, 0, len(list))
	for _, u := range list {
		p, limited, err := u.Peek(w, r)
		if err != nil {
			return err
		}
		if limited {
			zones = append(zones, quotaOf(p))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	return json.NewEncoder(w).Encode(map[string][]quota{"zones": zones})
}

// quotaOf returns what a client may know of a zone.
func quotaOf(p limiter.Key) quota {
	q := quota{Zone: p.Zone, Unit: p.Unit, Blocked: wholeSeconds(p.Blocked), Rules: make([]quotaRule, 0, len(p.Rules))}
	for _, r := range p.Rules {
		q.Rules = append(q.Rules, quotaRule{
			Rule: r.Name, Limit: r.Limit, Window: wholeSeconds(r.Window), Period: r.Period,
			Used: r.Used, Held: r.Held, Left: r.Remaining, Reset: wholeSeconds(r.Reset),
		})
	}
	return q
}

// wholeSeconds returns seconds rounded up.
func wholeSeconds(s float64) int64 { return int64(math.Ceil(s)) }

// Interface guards
var (
	_ caddy.Module                = (*QuotaHandler)(nil)
	_ caddy.Provisioner           = (*QuotaHandler)(nil)
	_ caddyhttp.MiddlewareHandler = (*QuotaHandler)(nil)
)
