package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/cli"
)

// searchers is how many zones are asked about a key at the same time: enough that their
// checks share calls to Redis.
const searchers = 16

// searchKey returns the state of a key in all zones that have counted it. The key is named as
// for one zone. Zones whose keys have more parts are searched in their most frequent keys.
func (in instance) searchKey(ctx context.Context, q url.Values) (any, error) {
	if !q.Has("part") && !q.Has("hash") {
		return nil, apiError(http.StatusBadRequest, errors.New("want part=<part> once for each part of the key, or hash=<hash>"))
	}
	zones := in.Zones()
	found := cli.Found{Keys: []limiter.Key{}, Zones: len(zones)}
	var (
		all  sync.WaitGroup
		mu   sync.Mutex // guards found
		free = make(chan struct{}, searchers)
	)
	for _, z := range zones {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			keys, partly := searchZone(ctx, z, q)
			mu.Lock()
			defer mu.Unlock()
			found.Keys = append(found.Keys, keys...)
			if partly {
				found.Partly = append(found.Partly, z.Name)
			}
		})
	}
	all.Wait()
	slices.Sort(found.Partly)
	slices.SortFunc(found.Keys, func(a, b limiter.Key) int {
		return cmp.Or(cmp.Compare(pressing(&b), pressing(&a)), strings.Compare(a.Zone, b.Zone), strings.Compare(a.Name, b.Name))
	})
	in.deniedLately(ctx, &found, q.Has("fleet"))
	return found, nil
}

// deniedLately adds how often the keys that were found were denied lately, here or on all instances.
func (in instance) deniedLately(ctx context.Context, found *cli.Found, fleet bool) {
	var on map[string][]cli.MemberZone
	if fleet {
		f, counted := in.fleet(ctx)
		found.Fleet, on = &f, byZone(counted)
	}
	for _, k := range found.Keys {
		z := in.Registry.Zone(k.Zone)
		if z == nil { // it is gone meanwhile
			continue
		}
		top := answerTop(z)
		if fleet {
			top = fleetTop(k.Zone, on[k.Zone])
		}
		for _, h := range top.Denied {
			if h.Key == k.Key {
				found.Denied = append(found.Denied, cli.Denials{Zone: k.Zone, Key: k.Key, Times: h.Times, Cause: h.Cause})
			}
		}
	}
}

// searchZone returns the state of a key in a zone, if the zone has counted it, and whether only
// its most frequent keys were searched.
func searchZone(ctx context.Context, z *limiter.Zone, q url.Values) (keys []limiter.Key, partly bool) {
	named := []url.Values{q}
	if len(q["part"]) == 1 {
		named = append(named, url.Values{"hash": q["part"]}) // it may look like one
	}
	for _, n := range named {
		t, err := targetIn(z, n)
		if err != nil {
			continue
		}
		if k := z.Peek(ctx, t); hasCounted(&k) {
			return []limiter.Key{k}, false
		}
	}
	if len(q["part"]) != 1 || len(z.KeyParts()) < 2 {
		return nil, false
	}
	for hash, name := range frequentWith(z, q.Get("part")) {
		t, err := targetIn(z, url.Values{"hash": {hash}})
		if err != nil {
			continue
		}
		k := z.Peek(ctx, t)
		k.Name = name
		keys = append(keys, k)
	}
	return keys, true
}

// frequentWith returns the most frequent keys of a zone that have a part, by hash.
func frequentWith(z *limiter.Zone, part string) map[string]string {
	names := make(map[string]string)
	top := answerTop(z)
	for _, h := range slices.Concat(top.Denied, top.Busy) {
		if slices.Contains(h.Parts, part) || h.Parts == nil && slices.Contains(strings.Fields(h.Name), part) {
			names[h.Key] = h.Name
		}
	}
	return names
}

// hasCounted reports whether a zone knows anything of a key but its rules.
func hasCounted(k *limiter.Key) bool {
	return k.Override != nil || k.Blocked > 0 || slices.ContainsFunc(k.Rules, func(r limiter.KeyRule) bool { return r.Used > 0 || r.Held > 0 || !r.Admits })
}

// pressing is how near a key is to a denial: 1 and more if it is denied now.
func pressing(k *limiter.Key) float64 {
	most := 0.0
	for _, r := range k.Rules {
		most = max(most, 1-float64(r.Remaining)/float64(max(1, r.Limit)))
	}
	if k.RetryIn != nil || k.Blocked > 0 {
		most++
	}
	return most
}
