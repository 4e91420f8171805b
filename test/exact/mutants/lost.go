//go:build unix

package main

// lostMutants break putting back what Redis has lost.
var lostMutants = []mutant{
	{
		name: "lost-unknown", breaks: "Redis is not told that a key is known", in: "outage.Fallback.Look", suites: redis,
		old: "z.Known, z.Due, short = n", new: "_, z.Due, short = n",
	},
	{
		name: "lost-not-taken", breaks: "the snapshot of a missing key is not put back", in: "outage.Handovers.TakeLost", suites: redis,
		old: "h, _ := d.take(memory.TableOf(z.Counter).Snapshots(), z, now, true)\n\t\tall = include", new: "h, _ := d.take(memory.TableOf(z.Counter).Snapshots(), z, now, true)\n\t\t_, _ = h, include",
	},
	{
		name: "lost-less", breaks: "a reply that is less than the snapshot is believed", in: "memory.Snapshots.Learn", suites: redis,
		old: "marks |= markLost", new: "marks |= 0",
	},
	{
		name: "lost-older", breaks: "an older reply is taken for a loss", in: "memory.Snapshots.Learn", suites: redis,
		old: "if now.Shared > x[snapshotTime] { // an older", new: "if true { // an older",
	},
	{
		name: "lost-replaced", breaks: "the snapshot is replaced by each reply", in: "memory.Snapshots.Learn", suites: redis,
		old: "h.Raise(snap, n.layout.told(x, i), later)", new: "_ = later",
	},
	{
		name: "lost-superseded", breaks: "levels under different limits are compared", in: "memory.Snapshots.less", suites: redis,
		old: "if h.Supersedes(z.Results[i].State, n.layout.told(x, i)) {", new: "if h.Supersedes(z.Results[i].State, n.layout.told(x, i)) && false {",
	},
	{
		name: "lost-alone", breaks: "an instance that owes does not put back what it knows", in: "memory.Snapshots.Take", suites: redis,
		old: "(told || x.due()) && n.layout.live(", new: "(told || x.has(markLost)) && n.layout.live(",
	},
	{
		name: "lost-clock", breaks: "a snapshot does not follow a clock that was set", in: "memory.snapshotLayout.follow", suites: redis,
		old: "r.(algorithms.Handover).Shift(l.told(x, i), d, now.Shared)", new: "_, _ = r, i",
	},
	{
		name: "lost-clock-time", breaks: "after the clock was set back no loss is noticed", in: "memory.snapshotLayout.follow", suites: redis,
		old: "x[snapshotTime] += d", new: "_ = d",
	},
	{
		name: "lost-reset", breaks: "a reset does not mark the key", in: "redis.resetsOf", suites: redis,
		old: "appendName(nil, prefix, &zones[i])), forgets + resetMargin}", new: "appendName(nil, prefix, &zones[i])), 0 * forgets}",
	},
	{
		name: "lost-reset-since", breaks: "what was told since a reset is not put back after it", in: "memory.Snapshots.Learn", suites: redis,
		old: "x[snapshotSince] = now.Shared // it is", new: "// it is",
	},
	{
		name: "lost-reset-less", breaks: "what was told before a reset is put back after it", in: "memory.Snapshots.Learn", suites: redis,
		old: "x[snapshotSince] = min(now.Shared, x[snapshotSince])", new: "x[snapshotSince] = now.Shared",
	},
	{
		name: "lost-reset-owing", breaks: "a debt begins with each charge", in: "memory.Snapshots.Owe", suites: redis,
		old: "starts || at < p.slot[slotOwing] {", new: "starts || !starts {",
	},
	{
		name: "lost-reset-uncharged", breaks: "a debt that a reset refuses is not counted", in: "outage.Handovers.Answered", suites: redis,
		old: "if refused&PartDebts != 0 {", new: "if refused&PartDebts != 0 && false {",
	},
	{
		name: "lua-reset-time", breaks: "whatever was known of a key that was reset is refused", in: "scripts/lua/reset.lua", suites: redis,
		old: "since + min(move, 0) <= reset", new: "true",
	},
	{
		name: "lua-reset-ahead", breaks: "a mark of a clock ahead refuses until that time", in: "scripts/lua/reset.lua", suites: redis,
		old: "call('SETRANGE', mark, 0, pack('<d', t))", new: "",
	},
	{
		name: "lost-reset-kept", breaks: "a snapshot that was refused is kept", in: "outage.Handovers.Answered", suites: redis,
		old: "h.snapshots.Forget(h.Zone.Key)", new: "_ = h",
	},
	{
		name: "lost-resets", breaks: "resets are not in force again after a loss", in: "outage.Handovers.Pay", suites: redis,
		old: "if d.resets.Swap(false) {", new: "if d.resets.Swap(false) && false {",
	},
	{
		name: "lost-resets-heard", breaks: "only the instance that made a reset has it in force again", in: "redis.Store.ResetLocal", suites: redis,
		old: "s.past.note(counters, k)", new: "",
	},
	{
		name: "lost-resets-made", breaks: "the instance that made a reset has it not in force again", in: "redis.resets.reset", suites: redis,
		old: "r.past.note(counters, k)", new: "",
	},
	{
		name: "lua-lost-resets-again", breaks: "a reset deletes what was used since each time that an instance has it in force again", in: "scripts/lua/reset.lua", suites: redis,
		old: "if mark and mark >= min(at, by) - 2e6 then return", new: "if mark and false then return",
	},
	{
		name: "lua-lost-resets-since", breaks: "what was used since a reset is not put back after a loss", in: "scripts/lua/reset.lua", suites: redis,
		old: "if older == 1 and call('DEL', KEYS[k]) == 1 then at = t end", new: "at = t",
	},
	{
		name: "lua-lost-resets-told", breaks: "what Redis said between its start and a reset that is in force again is put back", in: "scripts/lua/reset.lua", suites: redis,
		old: "if older == 1 and call('DEL', KEYS[k]) == 1 then at = t end", new: "if older == 1 then call('DEL', KEYS[k]) end",
	},
	{
		name: "lost-resets-passed-on", breaks: "a store that follows does not know the resets of the one before", in: "redis.Store.PassOn", suites: redis,
		old: "next.past.add(s.past.list()...)", new: "",
	},
	{
		name: "lost-resets-away", breaks: "resets are not in force again at a node that was away", in: "redis.pastResets.again", suites: redis,
		old: "p.conn.at(tag).unswept.Store(true)", new: "_ = tag",
	},
	{
		name: "lost-long-log", breaks: "the loss of a log that is not put back is counted nowhere", in: "outage.Fallback.Learn", suites: redis,
		old: "stores.UnchargedUnsupported, n.Learn(z, at, replace, charge))", new: "stores.UnchargedUnsupported, 0*n.Learn(z, at, replace, charge))",
	},
	{
		name: "lost-long-log-part", breaks: "a part of a log that is too long is put back", in: "algorithms.slidingLog.Raise", suites: redis,
		old: "if l.limit > logPutBack {", new: "if false {",
	},
	{
		name: "lost-long-log-late", breaks: "an older reply is taken for the loss of a log", in: "memory.Snapshots.Learn", suites: redis,
		old: "x.has(markTold) && now.Shared > x[snapshotTime] {", new: "x.has(markTold) {",
	},
	{
		name: "lost-background", breaks: "snapshots are put back with checks only", in: "outage.Handovers.sweep", suites: redis,
		old: "ok && s.current() != nil && ctx", new: "ok && false && ctx",
	},
	{
		name: "lost-heartbeat", breaks: "a heartbeat that is missing is no loss", in: "redis.instances.count", suites: redis,
		old: "if missing && told != 0 {", new: "if missing && told == 0 {",
	},
	{
		name: "lost-replaced-store", breaks: "what a store has not put back is not by the one that follows", in: "outage.Handovers.PassOn", suites: redis,
		old: "next.LostMemory()", new: "_ = next",
	},
	{
		name: "lost-large-debt", breaks: "only the first part of a large debt is charged", in: "outage.Handovers.walk", suites: redis,
		old: "if !more {\n\t\t\tfrom = to\n\t\t}", new: "from, _ = to, more",
	},
	{
		name: "lua-lost-charged", breaks: "a zone beside one that was lost is charged", in: generalLua, suites: redis,
		old: "all = all and not lost", new: "all = all",
	},
	{
		name: "lua-lost-fast", breaks: "the fast path starts a lost key anew", in: mainLua, suites: redis,
		old: "if s == nil and known then", new: "if s == nil and false then",
	},
	{
		name: "lua-lost-repeated", breaks: "only the first of several lost keys is noticed", in: mainLua, suites: redis,
		old: "local known = again == '+' or again == '' and marks > 1", new: "local known = again == '' and marks > 1",
	},
	{
		name: "lua-lost-new", breaks: "a new key that follows a known one is taken for lost", in: "redis.appendOp", suites: redis,
		old: "return append(args, \"-\"), before", new: "return append(args, \"\"), before",
	},
	{
		name: "lua-lost-moved", breaks: "times are not moved to a clock that was set", in: generalLua, suites: redis,
		old: "if max(move, -move) <= tolerance then move = 0 end", new: "move = 0",
	},
	{
		name: "lua-lost-drift", breaks: "times are moved by every small difference of clocks", in: generalLua, suites: redis,
		old: "if max(move, -move) <= tolerance then move = 0 end", new: "",
	},
	{
		name: "lua-lost-refused", breaks: "a reset is undone", in: generalLua, suites: redis,
		old: "not is_reset(reset, told, move)", new: "true",
	},
	{
		name: "lua-lost-repair", breaks: "a state ahead of the clock is put back to", in: generalLua, suites: redis,
		old: "  if z.stepped then\n    zone_commit(z)\n    z = zone_read(v, 4, k)\n  end\n", new: "",
	},
	{
		name: "lua-reset-older", breaks: "what was used since a reset is lost with Redis' memory", in: "scripts/lua/reset.lua", suites: redis,
		old: "older == 1 and call('DEL', KEYS[k])", new: "call('DEL', KEYS[k])",
	},
	{
		name: "lua-beat-older", breaks: "a dump of before a reset undoes it", in: generalLua, suites: redis,
		old: "born <= told then missing = MISSING + OLDER", new: "born < 0 then missing = MISSING + OLDER",
	},
	{
		name: "lua-beat-kept", breaks: "a dump has no list of instances", in: generalLua, suites: redis,
		old: "told > 0 and KEPT or SEEN / 1000", new: "SEEN / 1000",
	},
	{
		name: "resets-older", breaks: "a dump of before a reset undoes it", in: "redis.pastResets.lost", suites: redis,
		old: "p.older.Store(true)", new: "p.older.Store(false)",
	},
	{
		name: "lua-handover-follows", breaks: "a handover by a higher limit leaves a level at the lower one", in: generalLua, suites: redis,
		old: "  if z.stepped then\n    zone_commit(z)\n    z = zone_read", new: "  if z.stepped == true then\n    zone_commit(z)\n    z = zone_read",
	},
	{
		name: "lua-max-meter", breaks: "a snapshot replaces a higher level", in: meterLua, suites: redis,
		old: "if level > D then new = told end", new: "if level > 0 then new = told end",
	},
	{
		name: "lua-max-fixed-start", breaks: "the later window is kept", in: fixedLua, suites: redis,
		old: "start, more = math.min(S, start), more > 0 and math.max(u, more) or 0", new: "start, more = math.max(S, start), more > 0 and math.max(u, more) or 0",
	},
	{
		name: "lua-max-fixed-count", breaks: "the smaller count is kept", in: fixedLua, suites: redis,
		old: "more > 0 and math.max(u, more) or 0", new: "more > 0 and math.min(u, more) or 0",
	},
	{
		name: "lua-max-fixed-align", breaks: "an aligned window is moved off its place", in: fixedLua, suites: redis,
		old: "if align == 1 and start + W > t - move then", new: "if false then",
	},
	{
		name: "lua-max-sliding", breaks: "the counters are compared one by one", in: slidingLua, suites: redis,
		old: "c[x], sum = most - sum, most", new: "c[x], sum = math.max(c[x], told[x]), most",
	},
	{
		name: "lua-max-log", breaks: "a log is raised by one timestamp too few", in: logLua, suites: redis,
		old: "if m < have and stamp(z, s, off, C, h - 1 - m) >= q then x = m + 1 else y = m end", new: "if m <= have and stamp(z, s, off, C, h - 1 - m) >= q then x = m + 1 else y = m end",
	},
	{
		name: "lua-max-log-last", breaks: "the last timestamp of a log is not raised", in: logLua, suites: redis,
		old: "if x == 0 then newest = q end", new: "",
	},
	{
		name: "lua-max-log-ring", breaks: "a log that grows keeps its ring", in: logLua, suites: redis,
		old: "C, off = ring_size(reach, 0, L, C0), z.tail\n", new: "C = ring_size(reach, 0, L, C0)\n",
	},
	{
		name: "lua-max-log-over", breaks: "what has left the window is found again by a clock set back", in: logLua, suites: redis,
		old: "if over > 0 then write(z, off, C, h - first - over, rep('\\0', over * 8)) end", new: "",
	},
	{
		name: "lua-newest", breaks: "the oldest timestamps are reported as the newest", in: logLua, suites: redis,
		old: "local at = off + (h - m) % max(C, 1) * 8", new: "local at = off + (h - live) % max(C, 1) * 8",
	},
	{
		name: "lua-debt-newest", breaks: "a debt among many timestamps is inserted out of order", in: logLua, suites: redis,
		old: "at = min(max(at, least), t)", new: "at = min(at, t)",
	},
	{
		name: "max-meter", breaks: "the lower of two levels is kept", in: "algorithms.meter.Raise", suites: goRules,
		old: "if m.levelUpTo(other, t, m.top(other)) <= m.levelUpTo(snap, t, m.top(snap)) {", new: "if m.levelUpTo(other, t, m.top(other)) >= m.levelUpTo(snap, t, m.top(snap)) {",
	},
	{
		name: "max-fixed", breaks: "the smaller of two counts is kept", in: "algorithms.fixedWindow.Raise", suites: goRules,
		old: "snap[0], snap[1] = min(snap[0], other[0]), max(used, more)", new: "snap[0], snap[1] = min(snap[0], other[0]), min(used, more)",
	},
	{
		name: "max-sliding", breaks: "counters of different parts are compared", in: "algorithms.slidingWindow.Raise", suites: goRules,
		old: "if at := int64(x) - (newest - other[0]); at >= 0 {", new: "if at := int64(x); at >= 0 {",
	},
	{
		name: "max-log-since", breaks: "what was charged since is not counted in a snapshot", in: "algorithms.slidingLog.Raise", suites: goRules,
		old: "since > 0 && at > edge {", new: "since > 0 && at < edge {",
	},
	{
		name: "max-log-overtaken", breaks: "a reply that was overtaken is taken for the latest", in: "algorithms.slidingLog.follow", suites: goRules,
		old: "copy(snap[:snapRuns], other)", new: "_ = snap",
	},
	{
		name: "log-clock-back", breaks: "what is charged after the clock was set back counts again with each reply", in: "algorithms.slidingLog.overtakes", suites: goRules,
		old: "if n > 0 && n <= l.limit {\n\t\treturn false\n\t}", new: "",
	},
	{
		name: "max-log-runs", breaks: "merged runs have the later time", in: "algorithms.merged", suites: goRules,
		old: "runs[least+1].n += runs[least].n\n", new: "runs[least+1].n += runs[least].n\n\t\truns[least+1].at = runs[least].at\n",
	},
	{
		name: "max-log-own", breaks: "an instance's own charge is not in its snapshot", in: "algorithms.logView.Charge", suites: goRules,
		old: "newest[kept+i] = s[2]", new: "newest[kept+i] = 0",
	},
	{
		name: "max-log-leased", breaks: "what an instance has leased of a log counts in its snapshot as of the charge", in: "algorithms.slidingLog.Raise", suites: goRules,
		old: "at = max(at, snap[snapLast])", new: "at = max(at, 0)",
	},
	{
		name: "max-log-ahead", breaks: "what is leased of a log is merged with what was charged before", in: "algorithms.setRuns", suites: goRules,
		old: "runs[ahead].at > snap[snapTime] {", new: "runs[ahead].at < snap[snapTime] {",
	},
	{
		name: "debt-level", breaks: "a debt is charged in the units of the share", in: "algorithms.meter.Debt", suites: redis,
		old: "return []int64{m.convert(m.part(level, c)-m.part(level, rest), full)}", new: "return []int64{m.part(level, c) - m.part(level, rest)}",
	},
	{
		name: "debt-log-more", breaks: "the rest of a large debt is forgotten", in: "algorithms.slidingLog.Owed", suites: redis,
		old: "return owed, max(0, owed-debtAtOnce)", new: "return owed, 0",
	},
	{
		name: "debt-log-groups", breaks: "groups of a debt count as old as their oldest", in: "algorithms.slidingLog.Debt", suites: redis,
		old: "debt = append(debt, stamp(s, i+size-1))", new: "debt = append(debt, stamp(s, i))",
	},
	{
		name: "lua-max-jump", breaks: "older timestamps that were put back count as charged since", in: logLua, suites: redis,
		old: "h, z.tail = jump(max(h, floor(t / 1000000) * JUMP), C) + reach, off + C * 8", new: "h, z.tail = reach, off + C * 8",
	},
	{
		name: "lua-debt-jump", breaks: "older timestamps of a debt count as charged since", in: logLua, suites: redis,
		old: "return jump(h, C) + (h + total) % C, C, off,", new: "return h + total, C, off,",
	},
	{
		name: "lua-spread", breaks: "in the general path, an instance without a snapshot is told the newest timestamps only", in: generalLua, suites: redis,
		old: "if z.log then z.log.spread = not z.known end", new: "",
	},
	{
		name: "lost-look", breaks: "an instance does not learn what a handover in the background has led to", in: "outage.Handovers.send", suites: redis,
		old: "if of.Has != nil {", new: "if false {",
	},
	{
		name: "lost-look-keys", breaks: "the keys of a handover in the background are those of others in zones with permits", in: "redis.outages.HandOver", suites: redis,
		old: "q.decide(a.o.Prefix, &looks[i], at)", new: "q.decide(a.o.Prefix, &looks[i], at)\n\t\tif readsPermits(&looks[i].Zones[0]) {\n\t\t\tq.names = q.names[:len(q.names)-1]\n\t\t}",
	},
	{
		name: "ramp-hold", breaks: "an instance returns to Redis before the others have noticed that it is back", in: "redis.decider.usesRedis", suites: redis,
		old: "- back - n.pause()", new: "- back",
	},
}
