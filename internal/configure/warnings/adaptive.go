package warnings

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/limiter"
)

// warnOfAdaptive warns of an in_flight adaptive that cannot do what it is for.
func warnOfAdaptive(warn Warn, z *limiter.Zone) {
	if z.InFlightAdaptive == nil {
		return
	}
	zone := zap.String("zone", z.Name)
	if z.Shadow {
		warn("in_flight adaptive in a zone in shadow does nothing: requests do not keep to a limit, so that none can be found",
			zone, zap.String("advice", "leave shadow out, or begin with a min that is far above the load"))
	}
	if z.MaxWait == 0 {
		warn("in_flight adaptive without max_wait: no request waits, and priority and fairness to keys do nothing",
			zone, zap.String("advice", "add max_wait, such as max_wait 500ms"))
	}
}

// warnOfPriority warns of a priority that clients choose: what a header, cookie or parameter says that no handler before
// the zone sets.
func (p *place) warnOfPriority(warn Warn) {
	for _, name := range p.Zone.Config.Priority.Placeholders() {
		set := slices.ContainsFunc(p.Before(), func(h caddyhttp.MiddlewareHandler) bool { return foreign(h) || setsPlaceholder(h, name) })
		if !chosenByClients(name) || set && strings.HasPrefix(name, requestHeader) {
			continue
		}
		warn("clients choose their priority: it is what they send",
			zap.String("zone", p.Zone.Name), zap.String("placeholder", "{"+name+"}"), zap.String("advice", "use a placeholder of authentication, or set the header before rate_limit, such as by forward_auth"))
	}
}
