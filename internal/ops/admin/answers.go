package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/history"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/topk"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/stores/hash"
)

// answerZones returns the zones, stores and rules of the running configuration.
func (in instance) answerZones() cli.Zones {
	return cli.Zones{Overview: in.answerOverview(), Zones: in.answerAll(in.Registry.Zones())}
}

// answerAll returns zones with their counts, ordered by name.
func (in instance) answerAll(zones []*limiter.Zone) []cli.Zone {
	all := []cli.Zone{}
	at := make(map[string]int)
	tables := make(map[*memory.Table]bool)
	for _, z := range zones {
		i, ok := at[z.Name]
		if !ok {
			i = len(all)
			at[z.Name] = i
			all = append(all, in.answerZone(z))
			all[i].Decisions, all[i].Denied, all[i].ShadowDenied = z.Decisions()
			all[i].Places = z.PlaceState()
			all[i].Blocked, all[i].Cost = z.Blocked(clock.Now()), settledOf(z)
		}
		all[i].Handlers++
		for _, b := range z.Tables() {
			if !tables[b.Table] {
				tables[b.Table] = true
				all[i].Keys += b.Table.Keys()
			}
		}
	}
	slices.SortFunc(all, func(a, b cli.Zone) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// settledOf returns what requests of a zone cost by their responses, since the process started.
func settledOf(z *limiter.Zone) uint64 {
	if z.Counters() == nil {
		return 0
	}
	return z.Counters().Sum(metrics.Settled)
}

// answerOverview returns what the answers say of the whole instance.
func (in instance) answerOverview() cli.Overview {
	m := metrics.Of(in.Process)
	return cli.Overview{
		Now: time.Now(), Instance: in.answerInstance(), Requests: m.Requests.Requests(), Stores: in.answerStores(), Rules: in.answerSource(), Lists: in.Lists.Status(), Took: timings(m.Seconds),
	}
}

// processStarted is when the process started.
var processStarted = time.Now()

// answerInstance returns the process that answers.
func (in instance) answerInstance() cli.Instance {
	host, _ := os.Hostname() // empty if the system has none
	version, _ := caddy.Version()
	return cli.Instance{
		Host: host, Listen: in.listens(), Caddy: version, Diana: moduleVersion(), Config: in.Hash(),
		Since: in.Started, Started: processStarted,
	}
}

// mostListens is how many addresses tell an instance from others on its machine.
const mostListens = 3

// listens returns the first addresses on which the HTTP servers of the instance listen.
func (in instance) listens() (list []string) {
	servers, _ := in.Servers() // none: nothing listens
	for _, s := range servers {
		list = append(list, s.Listen...)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return list[:min(mostListens, len(list))]
}

const modulePath = "github.com/dianalimiter/diana"

// moduleVersion returns the version of this module in the build.
var moduleVersion = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Version != "" {
			return m.Version
		}
	}
	return "unknown"
})

func (in instance) answerStores() []cli.Store {
	list := make([]cli.Store, len(in.Stores))
	for i, c := range in.Stores {
		s := c.Status()
		mode := stores.ModeShared
		if !s.Up {
			mode = s.OnFailure.Mode()
		}
		list[i] = cli.Store{
			Name: s.Name, Up: s.Up, Mode: mode.String(), Since: s.Since, OnFailure: s.OnFailure.String(), Instances: s.Instances, Down: answerDown(s.Down),
			Calls: s.Calls.Calls, Checks: s.Calls.Checks, CallSeconds: s.Calls.Took.Seconds(),
		}
		if !s.Up {
			list[i].Share = s.Enforced
		}
	}
	return list
}

// answerDown returns the nodes of a Cluster that are unavailable.
func answerDown(nodes []stores.NodeDown) (down []cli.Node) {
	for _, n := range nodes {
		if n.Address != "" {
			down = append(down, cli.Node{Address: n.Address, Since: n.Since})
		}
	}
	return down
}

func (in instance) answerSource() *cli.Source {
	if in.Follower == nil {
		return nil
	}
	st := in.Follower.Status()
	s := &cli.Source{Source: in.Follower.Name(), State: string(st.State), Since: st.Applied, Confirmed: st.Confirmed}
	if st.Err != nil {
		s.Error, s.ErrorSince, s.Lost = loglimit.Short(st.Err), st.Failed, errors.Is(st.Err, rules.ErrEmpty)
	}
	s.Unknown = follow.FirstNames(in.Registry.Unknown(in.Registry.Document()))
	return s
}

// answerZone returns a zone without its counts.
func (in instance) answerZone(z *limiter.Zone) cli.Zone {
	s := z.Status()
	answer := cli.Zone{
		Name: z.Name, Store: z.StoreName(), Origin: in.Origin(s), Enabled: s.Enabled, Shadow: s.Shadow,
		Key: z.KeyParts(), Rules: answerRules(s.Rules), Overrides: s.Overrides, Exceptions: s.Exceptions, InFlight: z.InFlight, Adaptive: z.InFlightAdaptive, MaxKeys: s.MaxKeys,
		IPv4: z.Config.Plan.V4, IPv6: z.Config.Plan.V6, LogKey: z.LogsKeys(), Uncounted: z.Counters() == nil,
	}
	if unit := z.Unit(); unit != "requests" {
		answer.Unit = unit
	}
	if own, replaced := replacedRules(z, s); replaced {
		answer.Configured = own
	}
	alone := in.alone(z.StoreName())
	if alone {
		answer.Alone = s.AloneInFlight
	}
	for i := range answer.Rules {
		if r := &answer.Rules[i]; alone && s.Alone[i] != r.Limit {
			r.Enforced = s.Alone[i]
		}
	}
	return answer
}

// alone reports whether this instance decides with its share of the limits in a store.
func (in instance) alone(store string) bool {
	return slices.ContainsFunc(in.Stores, func(c stores.Shared) bool {
		s := c.Status()
		return s.Name == store && s.OnFailure == stores.FailLocal && !s.Up
	})
}

// answerHistory returns a range of the history: the parameters are range, zone, which may be
// repeated, and since.
func (in instance) answerHistory(q url.Values) (any, error) {
	since, err := sinceIn(q)
	if err != nil {
		return nil, apiError(http.StatusBadRequest, err)
	}
	name := cmp.Or(q.Get("range"), history.Ranges[0].Name)
	i := slices.IndexFunc(history.Ranges[:], func(r history.Range) bool { return r.Name == name })
	if i < 0 {
		return nil, apiError(http.StatusBadRequest, fmt.Errorf("range %q: want 5m, 1h or 24h", name[:min(len(name), 64)]))
	}
	return history.Of(in.Process).Since(i, q["zone"], since), nil
}

// sinceIn parses the parameter since.
func sinceIn(q url.Values) (since int64, err error) {
	if text := q.Get("since"); text != "" {
		if since, err = strconv.ParseInt(text, 10, 64); err != nil || since < 0 || since == math.MaxInt64 {
			return 0, fmt.Errorf("since %q: want the number of a step, such as the value of last", text[:min(len(text), 64)])
		}
	}
	return since, nil
}

// targetIn parses the parameters of a key: part, once for each part, or hash; and cost.
func targetIn(z *limiter.Zone, q url.Values) (t limiter.Target, err error) {
	cost := max(1, z.Config.Charge.Fixed)
	if text := q.Get("cost"); text != "" {
		if cost, err = strconv.ParseInt(text, 10, 64); err != nil || cost < 1 {
			return t, fmt.Errorf("cost %q: want a number of at least 1", text)
		}
		cost = min(cost, config.MaxCost)
	}
	if text := q.Get("hash"); text != "" {
		k, ok := hash.ParseKey(text)
		if !ok {
			return t, fmt.Errorf("hash %q: want a key in the form of zones/%s/top", text[:min(len(text), 64)], z.Name)
		}
		return limiter.Target{Key: k, Cost: cost}, nil
	}
	return z.Target(q["part"], cost)
}

// reset resets a key and returns its new state, which says where the key was reset.
func (in instance) reset(ctx context.Context, z *limiter.Zone, t limiter.Target) limiter.Key {
	where, failed := "everywhere", ""
	err := in.Registry.Reset(ctx, z, t.Key)
	if err != nil || !z.Shared() {
		where = "in this instance"
	}
	if err != nil {
		failed = loglimit.Short(err)
		what := "a key was reset in this instance only: reset it again when the store is back"
		if errors.Is(err, stores.ErrUnannounced) {
			where = "in the store"
			what = "a key was reset in the store, but other instances were not told"
		}
		in.Logger.Error(what, zap.String("zone", z.Name), zap.String("key", t.Key.String()), loglimit.Error(err), zap.String("advice", stores.Advice(err)))
	} else {
		in.Logger.Info("a key was reset", zap.String("zone", z.Name), zap.String("key", t.Key.String()), zap.String("where", where))
	}
	k := z.Peek(ctx, t)
	k.Reset, k.Error = where, failed
	return k
}

const maxTop = 100

// answerTop returns a zone's busiest, most denied and most costly keys in this instance.
func answerTop(z *limiter.Zone) cli.Top {
	t := cli.Top{Zone: z.Name, Busy: []topk.Hit{}, Denied: []topk.Hit{}}
	if keys, ok := z.Ranking().(*topk.Keys); ok {
		now := clock.Now()
		t.Busy, t.Denied, t.Costly = keys.Busiest(maxTop, now), keys.MostDenied(maxTop, now), keys.MostCostly(maxTop, now)
		for _, hits := range [][]topk.Hit{t.Busy, t.Denied, t.Costly} {
			for i := range hits {
				if !z.LogsKeys() { // an earlier configuration may have kept names
					hits[i].Name, hits[i].Parts = "", nil
				}
				if t, err := z.Target(hits[i].Parts, 1); err != nil || t.Key.String() != hits[i].Key {
					hits[i].Parts = nil // they name another key: a part is missing, and key_missing says what counts instead
				}
				if k, ok := hash.ParseKey(hits[i].Key); ok {
					hits[i].Blocked = limiter.InSeconds(z.BlockedFor(k, now))
				}
			}
		}
	}
	return t
}

// answerTops returns the most frequent keys of every zone that has met requests.
func (in instance) answerTops() cli.Tops {
	tops := cli.Tops{Zones: []cli.Top{}}
	for _, z := range in.Zones() {
		if t := answerTop(z); len(t.Busy) > 0 {
			tops.Zones = append(tops.Zones, t)
		}
	}
	slices.SortStableFunc(tops.Zones, func(a, b cli.Top) int { return cmp.Compare(b.Busy[0].Times, a.Busy[0].Times) })
	return tops
}
