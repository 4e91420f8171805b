package exact_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

// TestBlocksAgainstTheOracle runs random traces of rules that block on the oracle, the local
// table, and the script on a real Redis with virtual time. Meanwhile the blocks of the rules
// change, the key is reset, and requests hold their cost before it is charged, as those of
// zones in several slots of a Cluster do.
func TestBlocksAgainstTheOracle(t *testing.T) {
	all := newSites(t)
	verdicts, started, blocked := 0, 0, 0
	for want := operations(t) / 5; verdicts < want; {
		rapid.Check(t, func(t *rapid.T) {
			b := newBlocking(t, all)
			kinds, sizes := requests(t)
			changes := rapid.SliceOfN(rapid.IntRange(0, 60), len(kinds), len(kinds)).Draw(t, "changes")
			for i := range kinds {
				if kinds[i] == 0 {
					continue
				}
				b.change(changes[i])
				e := b.tr.next(kinds[i], sizes[i])
				was := b.want.Peek(e.now, e.cost)
				admit, verdict := apply(b.want.Decide, b.want.Peek, e)
				if b.blocks() && !admit && !slices.Equal(was, verdict) && !e.peek {
					started++
				}
				b.tr.done(e, admit, verdict)
				holds := changes[i] > 50 && !e.peek && !slices.ContainsFunc(b.tr.rules, delays)
				b.compare(e, holds, admit, verdict)
				verdicts += len(verdict)
				if !admit && !e.peek && slices.Equal(was, verdict) && b.blocks() {
					blocked++
				}
			}
		})
	}
	t.Logf("%d verdicts, %d blocks were started, %d requests were denied otherwise in a zone that blocks", verdicts, started, blocked)
	if started < verdicts/1000 {
		t.Errorf("%d of %d verdicts started a block: the traces show little", started, verdicts)
	}
}

// blocking is a key under rules of which some block it, in versions that block for other times.
type blocking struct {
	t        *rapid.T
	sites    *sites
	want     *oracle.Blocking
	tr       *trace
	versions [][]int64
	grows    [][][]int64 // by version
	version  int
	counters map[string][]*stores.Counter // of each store, by version
}

var blockedKey = stores.Key{Hi: 1, Lo: 2}

func newBlocking(t *rapid.T, all *sites) *blocking {
	rules := drawMixed(t)
	compiled, err := compile(rules)
	if err != nil {
		t.Fatalf("%v", err)
	}
	b := &blocking{t: t, sites: all, counters: make(map[string][]*stores.Counter)}
	b.tr = newTrace(rapid.Int64Range(1_700_000_000*second, 1<<51).Draw(t, "beginning"), rules, compiled)
	for v := range 3 {
		blocks := make([]int64, len(rules))
		for i, r := range rules {
			blocks[i] = rapid.OneOf(rapid.SampledFrom([]int64{0, 1, 2, r.Window}), rapid.Int64Range(1, 3*r.Window)).Draw(t, "block")
		}
		switch v {
		case 0: // by which the key is reset
			blocks[0] = max(1, blocks[0])
		case 2: // rules that do not block
			clear(blocks)
		}
		b.versions, b.grows = append(b.versions, blocks), append(b.grows, drawGrows(t, blocks))
	}
	b.want = oracle.NewBlocking(b.versions[0], rules...)
	b.want.Grows = b.grows[0]
	all.zones++
	for _, store := range []string{"redis", "local"} {
		table, blocked := memory.NewTable(compiled, 100), memory.NewBlocks(100)
		for v, blocks := range b.versions {
			c := counterOf("b"+strconv.Itoa(all.zones), rules, compiled)
			c.Table = table
			if slices.Max(blocks) > 0 {
				c.Blocks, c.Grows, c.Blocked = blocks, b.grows[v], blocked
			}
			b.counters[store] = append(b.counters[store], c)
		}
	}
	return b
}

// drawGrows draws for how long the blocks of rules last that follow each other; mostly some grow.
func drawGrows(t *rapid.T, blocks []int64) (grows [][]int64) {
	if slices.Max(blocks) == 0 || rapid.IntRange(0, 3).Draw(t, "grows") == 0 {
		return nil
	}
	for _, d := range blocks {
		var list []int64
		for n := rapid.IntRange(0, 4).Draw(t, "steps"); d > 0 && n > 0; n-- {
			d += rapid.SampledFrom([]int64{0, 1, d, 1_000_000}).Draw(t, "more")
			list = append(list, d)
		}
		grows = append(grows, list)
	}
	return grows
}

// counterOf returns a counter of rules, without a table.
func counterOf(zone string, rules []oracle.Rule, compiled []algorithms.Rule) *stores.Counter {
	c := &stores.Counter{Terms: stores.Terms{Zone: zone}, Rules: compiled, Split: func(int64) []algorithms.Rule { return compiled }}
	for _, r := range rules {
		c.Algorithms = append(c.Algorithms, algorithm(r))
		c.Kinds += fmt.Sprint(".", algorithm(r).Kind(), "/", r.Window)
	}
	return c
}

func (b *blocking) blocks() bool { return slices.Max(b.want.Blocks) > 0 }

// change sometimes changes for how long the rules block, or resets the key.
func (b *blocking) change(n int) {
	switch n {
	case 1, 2, 3:
		b.version = n - 1
		b.want.Blocks, b.want.Grows = b.versions[b.version], b.grows[b.version]
	case 4:
		b.want.Reset()
		first := b.counters["redis"][:1] // whose rules block
		if err := b.sites.shared.Reset(context.Background(), first[0].Zone, first, blockedKey); err != nil {
			b.t.Fatalf("%v", err)
		}
		b.counters["local"][0].Reset(blockedKey)
	}
}

// compare decides a request in both stores. A request that holds its cost is charged
// afterwards, so that only its verdict can be compared.
func (b *blocking) compare(e event, holds, admit bool, want []oracle.Verdict) {
	b.sites.now.Store(e.now)
	if err := b.sites.set(e.now); err != nil {
		b.t.Fatalf("%v", err)
	}
	for name, s := range map[string]stores.Store{"redis": b.sites.shared, "local": b.sites.local} {
		b.sites.shared.ResetLocal(nil, stores.Key{}) // every check reaches Redis
		c := b.counters[name][b.version]
		check := &stores.Check{Peek: e.peek, Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: blockedKey, Tag: blockedKey}, Cost: e.cost, Holding: stores.Holding{Reserve: holds}}}}
		s.Decide(context.Background(), check)
		z := &check.Zones[0]
		if holds && check.Admitted {
			s.Finish(context.Background(), z, e.cost)
		}
		same := check.Admitted == admit || e.peek
		for i, r := range z.Results {
			got := oracle.Verdict{Admit: r.Admit, Remaining: r.Remaining, RetryAfter: r.Retry, ResetAfter: r.Reset, Delay: r.Delay}
			if holds && admit {
				same = same && got.Admit
			} else {
				same = same && got == want[i]
			}
		}
		if !same {
			b.t.Fatalf("%s and oracle differ on the last request:\n%s %v %+v, block %+v\noracle %v %+v\nblocks %v, holds %v%v",
				name, name, check.Admitted, z.Results, z.Block, admit, want, b.want.Blocks, holds, b.tr)
		}
	}
}
