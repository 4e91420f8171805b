//go:build unix

package main

// fallbackMutants break going on without Redis, and coming back.
var fallbackMutants = []mutant{
	{
		name: "fallback-share", breaks: "an instance in fallback enforces the whole limit", in: "redis.Options.share", suites: redis,
		old: "max(1, o.Seen.Load())*1e6", new: "1e6",
	},
	{
		name: "fallback-share-fixed", breaks: "the configured number of instances is ignored", in: "redis.Options.share", suites: redis,
		old: "cmp.Or(o.ShareOf, max(1", new: "cmp.Or(0, max(1",
	},
	{
		name: "fallback-permit", breaks: "a permit taken in fallback is released in Redis", in: "outage.Fallback.Decide", suites: redis,
		old: "z.Permit.Mode = stores.ModeFallback", new: "z.Permit.Mode = stores.ModeShared",
	},
	{
		name: "fallback-estimate", breaks: "a request that waited since an outage holds no more of its estimate than a share", in: "redis.decider.attempt", suites: redis,
		old: "z.CutCost(z.Rules)", new: "_ = z.Rules",
	},
	{
		name: "snapshots-owed", breaks: "an instance's debt is evicted for a snapshot", in: "memory.Snapshots.make", suites: redis,
		old: "return !snapshot(x).owes() }", new: "return true }",
	},
	{
		name: "snapshots-unlinked", breaks: "an evicted snapshot is still found in its slot", in: "memory.slots.remove", suites: redis,
		old: "s.index.unlink(n, mixAt(n), mixAt)", new: "_ = mixAt",
	},
	{
		name: "snapshots-reindexed", breaks: "snapshots are lost when their index grows", in: "memory.slots.reindex", suites: redis,
		old: "for i := range s.next {", new: "for i := range s.next / 2 {",
	},
	{
		name: "index-huge", breaks: "the index of a huge table grows with every key", in: "memory.index.room", suites: redis,
		old: "uint64(slot)+1 < 1<<x.bits", new: "slot+1 < 1<<x.bits",
	},
	{
		name: "fallback-cold", breaks: "an instance in fallback starts from zero", in: "memory.Snapshots.raise", suites: redis,
		old: "h.Warm(st, n.layout.told(x, i), z.Counter.Rules[i], now.Shared)", new: "_ = h",
	},
	{
		name: "fallback-base", breaks: "the counts of the snapshot are owed, too", in: "memory.location.owed", suites: redis,
		old: "Owed(st, p.slot[slotOwed], now)", new: "Owed(st, mostOwed, now)",
	},
	{
		name: "fallback-exception", breaks: "of a debt is charged what the exception of the key, which has ended, would admit", in: "memory.Snapshots.Warm", suites: redis,
		old: "c == nil || c.Capacity() <= z.Counter.Capacity()", new: "c == nil",
	},
	{
		name: "fallback-paid-twice", breaks: "a charged debt is owed again", in: "memory.Snapshots.Take", suites: redis,
		old: "x.setOwed(p.slot, p.debts(z, now.Shared, &h))", new: "p.debts(z, now.Shared, &h)",
	},
	{
		name: "fallback-ghost", breaks: "requests that Redis may have charged are charged again", in: "outage.Fallback.Decide", suites: redis,
		old: "if unknown {", new: "if unknown && false {",
	},
	{
		name: "fallback-rejected", breaks: "a debt that Redis rejected is dropped", in: "outage.Handovers.endCall", suites: redis,
		old: "of.Known && !of.Ran, d.o", new: "false, d.o",
	},
	{
		name: "fallback-cut", breaks: "a debt that could not be sent to its end is given up", in: "redis.mayHaveRun", suites: redis,
		old: ", isCut(err):", new: ":",
	},
	{
		name: "fallback-apart", breaks: "a debt that Redis rejected beside others is dropped", in: "outage.Handovers.Answered", suites: redis,
		old: "d.EndCall([]Handover{*h}, err)", new: "_ = d.EndCall",
	},
	{
		name: "fallback-away", breaks: "debts are dropped when their node goes away before they are sent", in: "outage.Handovers.EndCall", suites: redis,
		old: "d.endCall(all, Fate{Known: true})", new: "d.endCall(all, Fate{Known: true, Ran: true})",
	},
	{
		name: "fallback-replaced", breaks: "what is known and owed is handed over under rules that were replaced", in: "outage.adopted.counters", suites: redis,
		old: "all[c.Table] = c", new: "all[c.Table] = cmp.Or(all[c.Table], c)",
	},
	{
		name: "fallback-never-known", breaks: "a store is not told of rules that come into force", in: "limiter.change.commit", suites: []suite{limiterTests},
		old: "c.next[i].adopt(z)", new: "_ = z",
	},
	{
		name: "fallback-rewarmed", breaks: "what Redis knows is mixed with what a key owes", in: "memory.Snapshots.Warm", suites: redis,
		old: "if !x.owes() {\n\t\tn.setOrigin", new: "if true {\n\t\tn.setOrigin",
	},
	{
		name: "fallback-rebased", breaks: "a debt that is rejected is lost if the key was charged meanwhile", in: "memory.Snapshots.Owe", suites: redis,
		old: "min(p.slot[slotOwed]+cost, mostOwed)", new: "min(cost, mostOwed)",
	},
	{
		name: "fallback-reset", breaks: "what a key owed before a reset is owed again with the next charge", in: "memory.Table.clear", suites: []suite{memoryStore},
		old: "slot[slotOwed] = 0", new: "_ = slotOwed",
	},
	{
		name: "fallback-gone", breaks: "a key owes what does not count any more, for good", in: "memory.snapshot.setOwed", suites: []suite{memoryStore},
		old: "x[snapshotMarks] &^= markOwes", new: "_ = markOwes",
	},
	{
		name: "snapshots-alone", breaks: "a table of this process alone has snapshots", in: "memory.Table.Snapshots", suites: []suite{memoryStore},
		old: "if t.alone {", new: "if t.alone && false {",
	},
	{
		name: "fallback-canceled", breaks: "a call with debts is canceled when the store ends", in: "redis.outages.HandOver", suites: redis,
		old: "a.conn.background(context.WithoutCancel(ctx))", new: "a.conn.background(ctx)",
	},
	{
		name: "fallback-ended", breaks: "a store that has ended goes on handing over", in: "outage.Handovers.walk", suites: redis,
		old: "!from.Done() && ctx.Err() == nil && ", new: "!from.Done() && ",
	},
	{
		name: "fallback-finish", breaks: "charges after the response are not owed", in: "outage.Fallback.finish", suites: redis,
		old: "\t\troom = f.warm(z, now)\n", new: "\t\troom = false\n",
	},
	{
		name: "lifetime-closed", breaks: "a store is closed while requests of its configuration run", in: "redis.Store.close", suites: redis,
		old: "for used() || s.permits.any() {", new: "_ = used\n\tfor s.permits.any() {",
	},
	{
		name: "lifetime-never-closed", breaks: "a store whose requests have ended stays open", in: "redis.Store.Release", suites: redis,
		old: "s.uses.ended.Add(1)", new: "s.uses.ended.Load()",
	},
	{
		name: "lifetime-brief", breaks: "a use that begins and ends between two looks does not count", in: "redis.uses.recently", suites: redis,
		old: "now != begun || now != u.ended.Load()", new: "now < begun || now != u.ended.Load()",
	},
	{
		name: "lifetime-idle", breaks: "a store is closed at once after its last use", in: "redis.uses.recently", suites: redis,
		old: "return time.Since(idle) < d", new: "return time.Since(idle) < 0",
	},
	{
		name: "debt-late-reply", breaks: "what a late reply says of a debt is not read", in: "outage.Handovers.endCall", suites: redis,
		old: "if i < len(of.Handed) {", new: "if i < 0 {",
	},
	{
		name: "debt-reset", breaks: "a debt whose key was reset before it is noted is told nobody", in: "memory.Snapshots.Owe", suites: []suite{memoryStore, outageTests},
		old: "if starts && p.shard.states.cleared(", new: "if false && p.shard.states.cleared(",
	},
	{
		name: "debt-reset-again", breaks: "a debt from before a reset that comes back to a key which owes again counts as that, as far as it fits", in: "memory.Snapshots.Owe", suites: []suite{outageTests},
		old: "if s.resets.since(z.Key, at, local) {", new: "if false {",
	},
	{
		name: "reset-since", breaks: "a debt that begins while its key is reset is told nobody", in: "outage.Handovers.Reset", suites: []suite{outageTests},
		old: "d.giveUpKey(c, k, stores.UnchargedReset, true)", new: "d.giveUpKey(c, k, stores.UnchargedReset, false); c.Reset(k)",
	},
	{
		name: "reset-counted", breaks: "a reset leaves what this instance counted", in: "memory.Snapshots.GiveUp", suites: []suite{memoryStore, outageTests, redisStore},
		old: "\t\tp.table.clear(p.shard, p.slot)\n", new: "",
	},
	{
		name: "reset-known", breaks: "a reset leaves what Redis said", in: "memory.Snapshots.GiveUp", suites: []suite{memoryStore, outageTests, redisStore},
		old: "\t\tx.reset()\n\t}\n\treturn cost\n", new: "\t}\n\treturn cost\n",
	},
	{
		name: "debt-closed", breaks: "what is owed to a store that is closed is told nobody", in: "outage.Handovers.add", suites: []suite{outageTests},
		old: "\t\td.giveUpTable(z.Counter, stores.UnchargedClosed)\n", new: "",
	},
	{
		name: "permits-unsaid", breaks: "a store closes before charges are made that it has given up", in: "redis.permits.any", suites: redis,
		old: "len(p.records)+len(p.unsaid) > 0", new: "len(p.records) > 0",
	},
	{
		name: "lifetime-reports", breaks: "a store whose configuration is gone reports under its former name", in: "redis.Store.Destruct", suites: redis,
		old: "\ts.Observe(observers.Ended{Observer: s.conn.observer.get()})\n", new: "",
	},
	{
		name: "lifetime-debts", breaks: "what a store owes after its configuration is gone is not charged", in: "redis.Store.close", suites: redis,
		old: "done.Go(func() { m.run(ctx) })", new: "_ = m",
	},
	{
		name: "settle-lost", breaks: "what settle charges while Redis is unavailable is lost", in: "redis.Store.Finish", suites: redis,
		old: "s.fallback.Settle(z, charge, err)", new: "_ = err",
	},
	{
		name: "settle-held-lost", breaks: "what a response whose cost is held charges in a long outage is lost", in: "redis.Store.Finish", suites: redis,
		old: "case z.Permit.Taken && charge > 0 && !s.conn.usable(z.Tag):", new: "case false:",
	},
	{
		name: "settle-unsaid", breaks: "a charge that is not reported any more counts nowhere", in: "redis.renewals.giveUpUnsaid", suites: redis,
		old: "r.settle(&u.zone, u.charge,", new: "r.settle(&u.zone, 0,",
	},
	{
		name: "settle-unknown-owed", breaks: "a charge by settle that Redis may have made is charged again", in: "redis.Store.Finish", suites: redis,
		old: "s.fallback.Settle(z, charge, err)", new: "s.fallback.Settle(z, charge, errOpen)",
	},
	{
		name: "settle-refused-forgiven", breaks: "a charge by settle that Redis rejected is taken for one that it may have made", in: "redis.Store.Finish", suites: redis,
		old: "s.fallback.Settle(z, charge, err)", new: "s.fallback.Settle(z, charge, errUnanswered)",
	},
	{
		name: "settle-share", breaks: "with on_failure allow, only a share of what is owed is charged", in: "outage.Fallback.rules", suites: redis,
		old: "if !f.o.Local {\n\t\treturn c.Rules", new: "if false {\n\t\treturn c.Rules",
	},
	{
		name: "settle-whole", breaks: "without Redis a charge by settle counts by the whole rules instead of the share", in: "outage.Fallback.Settle", suites: redis,
		old: "local.Rules = f.rules(z.Counter)", new: "local.Rules = z.Counter.Rules",
	},
	{
		name: "fallback-ramp", breaks: "all keys return to Redis at once", in: "redis.decider.usesRedis", suites: redis,
		old: "if elapsed >= (ramp - shortestPause).Microseconds() {", new: "if elapsed >= 0 {",
	},
	{
		name: "fallback-background", breaks: "the debt of an unused key is not charged", in: "outage.Handovers.handOver", suites: redis,
		old: "failed, err := d.send(ctx, some)", new: "failed, err := d.send(ctx, some[:0])",
	},
	{
		name: "late-call", breaks: "a call whose caller has timed out is carried out", in: mainLua, suites: redis,
		old: "if t > unpack('<d', ARGV[1], 9) then return", new: "if t < 0 then return",
	},
	{
		name: "late-clock", breaks: "a clock that has gone ahead makes every call late", in: "redis.runner.eval", suites: redis,
		old: "o.node.clock.learn(-now)", new: "_ = now",
	},
	{
		name: "fallback-fewer", breaks: "a lower number of instances is applied immediately", in: "redis.instances.accept", suites: redis,
		old: "case i.fewer.IsZero():\n\t\ti.fewer = now\n\t\treturn false", new: "case i.fewer.IsZero():",
	},
	{
		name: "fallback-grows", breaks: "a lower number of instances is applied while a node is away", in: "redis.instances.accept", suites: redis,
		old: " || !i.conn.nodes.decideAll()", new: "",
	},
	{
		name: "fallback-grows-back", breaks: "a lower number of instances is applied while keys return to a node", in: "redis.node.decidesAll", suites: redis,
		old: "return !n.breaker.open.Load() && (back == 0 || now-back-n.pause() >= (ramp-shortestPause).Microseconds())", new: "return !n.breaker.open.Load() && back >= 0",
	},
	{
		name: "debt-meter-base", breaks: "what was known is owed, too", in: "algorithms.meter.part", suites: redis,
		old: "if c >= cd(level, m.w) {", new: "if c > 0 {",
	},
	{
		name: "debt-log-order", breaks: "the stamps of others are not inserted in order", in: "algorithms.slidingLog.insert", suites: redis,
		old: "slices.Sort(all)", new: "slices.Reverse(all)",
	},
	{
		name: "debt-log-base", breaks: "what was known is owed, too", in: "algorithms.slidingLog.Debt", suites: redis,
		old: "oldest(s, min(c, s[0], full.Limit()))", new: "oldest(s, min(s[0], full.Limit()))",
	},
	{
		name: "lua-debt-meter", breaks: "a debt has no bound (a dropped min)", in: meterLua, suites: redis,
		old: "D = math.max(D, math.min(D + math.min(owed, cap), cap))", new: "D = D + math.min(owed, cap)",
	},
	{
		name: "lua-debt-fixed", breaks: "a debt of a window that is over is charged", in: fixedLua, suites: redis,
		old: "more = start + W > t and math.min(more, math.max(0, L - u)) or 0", new: "more = math.min(more, math.max(0, L - u))",
	},
	{
		name: "lua-debt-sliding", breaks: "a debt is charged one part too late", in: slidingLua, suites: redis,
		old: "local y = 2 + math.max(0, c[1] - owed[1] + x - 2)", new: "local y = 2 + math.max(0, c[1] - owed[1] + x - 1)",
	},
	{
		name: "lua-debt-log", breaks: "stamps are not merged by age", in: logLua, suites: redis,
		old: "if unpack('<d', ring, m * 8 + 1) <= at then a = m + 1 else b = m end", new: "b = m",
	},
	{
		name: "debt-log-over", breaks: "what has left the window is found again by a clock set back", in: "algorithms.slidingLog.insert", suites: redis,
		old: "		setStamp(s, i, 0)\n", new: "		_ = i\n",
	},
	{
		name: "lua-debt-log-over", breaks: "what has left the window is found again by a clock set back", in: logLua, suites: redis,
		old: "over = min(over, AT_ONCE, C - live - total)", new: "over = 0",
	},
	{
		name: "lua-log-repair", breaks: "the stamps of a log are not repaired", in: logLua, suites: redis,
		old: "for x = 1, all do out[x] = pack('<d', unpack('<d', ring, x * 8 - 7) - excess) end", new: "for x = 1, all do out[x] = sub(ring, x * 8 - 7, x * 8) end",
	},
}
