//go:build unix

package main

// storeMutants break what keeps the counts.
var storeMutants = []mutant{
	{
		name: "local-commit", breaks: "a zone is charged before all have admitted", in: "stores.Check.Charges", suites: redis,
		old: "return check.Admitted && !check.Peek &&", new: "return !check.Peek &&",
	},
	{
		name: "check-joined", breaks: "a shadow is charged for a duplicate", in: "stores.Check.withheld", suites: []suite{conformance},
		old: " || check.Joined(i+1) && !check.Zones[i+1].Admits", new: "",
	},
	{
		name: "check-joined-before", breaks: "a duplicate is remembered that its shadow denies", in: "stores.Check.withheld", suites: []suite{conformance},
		old: "check.Joined(i) && !check.Zones[i-1].Admits || ", new: "",
	},
	{
		name: "overflow-leaves", breaks: "a group leaves a shared counter that it may have charged", in: "memory.overflow.find", suites: redis,
		old: "if o.owners[home]&shared == 0 {", new: "if o.owners[home] != 0 {",
	},
	{
		name: "overflow-takes", breaks: "a group takes a counter where others still owe", in: "memory.overflow.find", suites: redis,
		old: "if i := (home + 1 + n) % overflowGroups; unused(i) {", new: "if i := (home + 1 + n) % overflowGroups; unused(i) || i&1 == 0 {",
	},
	{
		name: "overflow-lost", breaks: "a network does not find its overflow counter", in: "memory.overflow.find", suites: redis,
		old: "if by&^shared == ownerOf(group) {", new: "if by == ownerOf(group)|shared {",
	},
	{
		name: "local-in-flight", breaks: "one request too many is in flight (> for >=)", in: "memory.location.judge", suites: redis,
		old: "p.held.Permits >= z.InFlight", new: "p.held.Permits > z.InFlight",
	},
	{
		name: "local-held-ignored", breaks: "what unanswered requests hold does not count", in: "memory.location.judge", suites: redis,
		old: "v := r.Judge(st, now, z.Cost, p.held.Cost)", new: "v := r.Judge(st, now, z.Cost, 0)",
	},
	{
		name: "local-hold-cost", breaks: "a permit reserves 1 instead of the cost", in: "memory.location.grant", suites: redis,
		old: "h.add(z, 1, z.HeldCost())", new: "h.add(z, 1, min(1, z.HeldCost()))",
	},
	{
		name: "local-hold-kept", breaks: "an answered request keeps its permit", in: "memory.Permits.release", suites: redis,
		old: "h.Add(z, -permits, -z.HeldCost())", new: "h.Add(z, permits-permits, -z.HeldCost())",
	},
	{
		name: "local-hold-cost-kept", breaks: "an answered request keeps its cost", in: "memory.Permits.release", suites: redis,
		old: "h.Add(z, -permits, -z.HeldCost())", new: "h.Add(z, -permits, 0)",
	},
	{
		name: "local-hold-twice", breaks: "a permit is released twice", in: "memory.Permits.release", suites: redis,
		old: "z.Permit.Taken = permits == 0\n", new: "z.Permit.Taken = permits >= 0\n",
	},
	{
		name: "local-finish-twice", breaks: "a charge after the response is made twice", in: "memory.Permits.Finish", suites: redis,
		old: "\t\tp.owe(z, now, charge)", new: "\t\tp.owe(z, now, charge)\n\t\tp.owe(z, now, charge)",
	},
	{
		name: "local-finish-repair", breaks: "a charge after the response is made on a state that is not repaired", in: "memory.location.owe", suites: redis,
		old: "\t\tr.Repair(st, now)\n\t\tr.Overdraw", new: "\t\tr.Overdraw",
	},
	{
		name: "local-remaining", breaks: "reservations are reported as remaining", in: "memory.location.chargeRules", suites: redis,
		old: "res.Remaining = max(0, res.Remaining-p.held.Cost)", new: "res.Remaining = max(0, res.Remaining)",
	},
	{
		name: "local-turn", breaks: "requests are charged without their delay", in: "memory.location.chargeRules", suites: redis,
		old: "r.Charge(st, now, z.Cost, turn)", new: "r.Charge(st, now, z.Cost, turn-turn)",
	},
	{
		name: "check-shadow", breaks: "a shadow denies the live zones", in: "stores.Check.Conclude", suites: redis,
		old: "range check.Zones[:len(check.Zones)-check.Shadows] {", new: "range check.Zones {",
	},
	{
		name: "check-shadow-turn", breaks: "a shadow is charged at the delay of the live zones", in: "stores.Check.TurnOf", suites: redis,
		old: "return check.Zones[i].Delay()", new: "return check.Turn",
	},
	{
		name: "check-all-rules", breaks: "only the last rule of a zone decides", in: "memory.location.judge", suites: redis,
		old: "z.Admits = z.Admits && v.Admit", new: "z.Admits = v.Admit",
	},
	{
		name: "check-turn-max", breaks: "the common delay is the last one, not the longest (a dropped max)", in: "stores.Check.Conclude", suites: redis,
		old: "max(turn, z.Delay())", new: "z.Delay()",
	},
	{
		name: "table-inherit", breaks: "a key that leaves an overflow counter loses what was charged there", in: "memory.states.copy", suites: redis,
		old: "for i := range l.rules {\n\t\tr := &l.rules[i]", new: "for i := range l.rules[:0] {\n\t\tr := &l.rules[i]",
	},
	{
		name: "table-inherit-log", breaks: "a log that leaves a shared counter is empty", in: "memory.states.copy", suites: redis,
		old: "copy(m.arena.state(to[r.at]), m.arena.state(from[r.at]))", new: "copy(m.arena.state(to[r.at]), never)",
	},
	{
		name: "table-bucket", breaks: "a new key is not judged by its shared counter", in: "memory.location.shared", suites: redis,
		old: "b != nil && s.states.unused(&t.layout, b, z.Rules, now)", new: "b != nil && !s.states.unused(&t.layout, b, z.Rules, now)",
	},
	{
		name: "table-evict-debt", breaks: "a key in debt is evicted", in: "memory.states.unused", suites: redis,
		old: "now); reset > 0 {", new: "now); reset > r.Window()/2 {",
	},
	{
		name: "table-full", breaks: "the table holds one key too many (>= for >)", in: "memory.Table.insert", suites: redis,
		old: "if t.keys.Add(1) > room {", new: "if t.keys.Add(1) > room+1 {",
	},
	{
		name: "table-remove", breaks: "a key behind a removed one is not found any more", in: "memory.index.unlink", suites: redis,
		old: ">= (j-i+n)%n {", new: "> (j-i+n)%n {",
	},
	{
		name: "arena-clear", breaks: "a block that is used again keeps the stamps of another key", in: "memory.arena.allocate", suites: redis,
		old: "clear(a.state(ref))", new: "clear(a.state(ref)[:0])",
	},
	{
		name: "arena-move", breaks: "a state that grows is lost", in: "memory.arena.grow", suites: redis,
		old: "rule.Move(a.state(bigger), a.state(ref))", new: "rule.Move(a.state(bigger), never)",
	},
	{
		name: "across-not-given-back", breaks: "what one store charged stays when another denies", in: "stores.group.release", suites: redis,
		old: "g.store.Finish(ctx, z, 0)", new: "_ = ctx",
	},
	{
		name: "across-not-charged", breaks: "reservations are released instead of charged after all stores have admitted", in: "stores.group.charge", suites: redis,
		old: "g.store.Finish(ctx, z, z.Cost)", new: "g.store.Finish(ctx, z, 0)",
	},
	{
		name: "across-no-reserve", breaks: "a store charges before the others have decided", in: "stores.askAll", suites: redis,
		old: "g.ask(ctx, asked < last)", new: "g.ask(ctx, asked > last)",
	},
	{
		name: "across-look", breaks: "the stores behind one that denies charge", in: "stores.group.peek", suites: redis,
		old: "g.check.Peek = true", new: "g.check.Peek = false",
	},
	{
		name: "across-lua-look", breaks: "Redis charges what it was only to look at", in: generalLua, suites: redis,
		old: "{}, not peek, nil", new: "{}, true, nil",
	},
	{
		name: "across-last", breaks: "a queue's store is not decided last", in: "stores.groupByStore", suites: redis,
		old: "} else if a.last {\n\t\t\treturn 1", new: "} else if b.last {\n\t\t\treturn 1",
	},
	{
		name: "across-shadow", breaks: "a shadow is charged though the live zones deny", in: "stores.decideShadows", suites: redis,
		old: "Peek: check.Peek || !check.Admitted}", new: "Peek: check.Peek}",
	},
	{
		name: "across-remaining", breaks: "released reservations are reported as used", in: "stores.group.uncount", suites: redis,
		old: "res.Count(res.Rule, res.State, g.check.Now, z.Held)", new: "_ = g",
	},
	{
		name: "across-hold-cost", breaks: "a zone that holds its cost until the answer is charged at once", in: "stores.group.charge", suites: redis,
		old: "z.Charged && !z.Counter.HoldCost {", new: "z.Charged {",
	},
	{
		name: "across-deadline", breaks: "the store with the longest timeout sets the deadline", in: "stores.withTimeout", suites: redis,
		old: "t.Timeout() < least)", new: "t.Timeout() > least)",
	},
	{
		name: "wire-zone", breaks: "keys of two zones have one name", in: "redis.appendHash", suites: redis,
		old: "b = append(b, z.Counter.Zone...)", new: "b = append(b, z.Counter.Zone[:0]...)",
	},
	{
		name: "wire-kinds", breaks: "keys of rules of other kinds have one name", in: "redis.appendName", suites: redis,
		old: "appendOwnKey(append(appendHash(b, prefix, z), z.Counter.Kinds...), z)", new: "appendOwnKey(appendHash(b, prefix, z), z)",
	},
	{
		name: "wire-key", breaks: "keys that lie in one slot have one name", in: "redis.appendOwnKey", suites: redis,
		old: "if z.Tag == z.Key {", new: "if z.Tag != (stores.Key{}) {",
	},
	{
		name: "wire-tag", breaks: "what belongs together lies in different slots", in: "redis.appendHash", suites: redis,
		old: "b = append(b, \":{\"...)\n\tb = hash.AppendKey(b, z.Tag)", new: "b = append(b, \":{\"...)\n\tb = hash.AppendKey(b, z.Key)",
	},
	{
		name: "wire-holds", breaks: "permits have the key of the counts", in: "redis.appendPermits", suites: redis,
		old: "append(appendHash(b, prefix, z), \"permits\"...)", new: "append(appendHash(b, prefix, z), z.Counter.Kinds...)",
	},
	{
		name: "wire-holds-key", breaks: "permits beside a zone's key have that key's name", in: "redis.appendPermits", suites: redis,
		old: "appendOwnKey(append(appendHash(b, prefix, z), \"permits\"...), z)", new: "append(appendHash(b, prefix, z), \"permits\"...)",
	},
	{
		name: "wire-rest", breaks: "what a reply has to spare is not noticed", in: "redis.reply.readRules", suites: redis,
		old: "if len(r.b) > 0 || views.err", new: "if len(r.b) > 8 || views.err",
	},
	{
		name: "wire-hold", breaks: "a reservation of a cost is sent as a permit only", in: "redis.prepared.appendZone", suites: redis,
		old: "\t\thold = holdCost", new: "\t\thold = holdPermit",
	},
	{
		name: "wire-shadow", breaks: "a shadow is not sent as one", in: "redis.marksOf", suites: redis,
		old: "marks = markShadow;", new: "marks = 0;",
	},
	{
		name: "wire-cost", breaks: "the cost is not sent", in: "redis.prepared.appendZone", suites: redis,
		old: "b = appendNumber(b, cost)", new: "b = appendNumber(b, min(cost, 1))",
	},
	{
		name: "wire-short", breaks: "a reply that ends early is read on", in: "redis.reply.next", suites: redis,
		old: "n < 0 || len(r.b) < n {", new: "n < 0 || len(r.b) < n-1 {",
	},
	{
		name: "wire-number", breaks: "a number that is no integer is taken", in: "redis.reply.number", suites: redis,
		old: "|| f != math.Trunc(f) {", new: "{",
	},
	{
		name: "wire-large", breaks: "a number above 2^53 is taken", in: "redis.reply.number", suites: redis,
		old: "!(math.Abs(f) <= 1<<53) ||", new: "math.Abs(f) > 1<<60 ||",
	},
	{
		name: "wire-charged", breaks: "the flag of a charge is not read", in: "redis.reply.readZone", suites: redis,
		old: "flags&flagCharged != 0,", new: "flags&flagAdmits != 0,",
	},
	{
		name: "wire-full", breaks: "the flag of a full zone is not read", in: "redis.reply.readZone", suites: redis,
		old: "flags&flagFull != 0\n", new: "false\n",
	},
	{
		name: "wire-stepped", breaks: "a repaired state is not reported", in: "redis.reply.readZone", suites: redis,
		old: "stepped = flags&flagStepped != 0", new: "return false, nil",
	},
	{
		name: "wire-disagree", breaks: "a verdict that differs from Redis' is not reported", in: "redis.reply.readZone", suites: redis,
		old: "return false, fmt.Errorf(\"zone %s: %w\", z.Counter.Zone, errDisagree)", new: "return fmt.Sprint() != \"\", nil",
	},
	{
		name: "wire-repair", breaks: "Go judges by a state that is not repaired", in: "redis.reply.readRules", suites: redis,
		old: "rule.Repair(s, now)", new: "_ = now",
	},
	{
		name: "wire-follows", breaks: "Go judges by a level that drains at a lower limit", in: "redis.reply.readRules", suites: redis,
		old: "algorithms.Follow(rule, s, now)", new: "_ = now",
	},
	{
		name: "local-follows", breaks: "a raised limit frees nobody of the local table", in: "memory.location.judge", suites: redis,
		old: "algorithms.Follow(r, st, now)", new: "_ = now",
	},
	{
		name: "wire-held", breaks: "reservations reported by Redis are ignored", in: "redis.reply.readZone", suites: redis,
		old: "z.Held = r.number()", new: "z.Held = r.number() * 0",
	},
	{
		name: "wire-own-hold", breaks: "a request's own reservation is reported as remaining", in: "redis.countResults", suites: redis,
		old: "held += z.Cost", new: "held += 0",
	},
	{
		name: "wire-recount", breaks: "a reserved and charged cost is reported as remaining", in: "stores.ZoneCheck.recount", suites: redis,
		old: "res.Rule.Charge(res.State, now, z.Cost, 0)", new: "_ = now",
	},
	{
		name: "recall-cost", breaks: "the snapshot of a log judges costs that it does not know of", in: "algorithms.slidingLog.Recalls", suites: redis,
		old: "same && (cost <= l.limit-snap[snapUsed]+1 || cost > l.limit)", new: "same",
	},
	{
		name: "recall-left", breaks: "the snapshot of a log judges after its oldest timestamp has left", in: "algorithms.slidingLog.Recalls", suites: redis,
		old: "snap[snapLeaves] == 0 || snap[snapLeaves] > now\n", new: "true\n",
	},
	{
		name: "recall-age", breaks: "what Redis said denies until the retry, however long that is", in: "redis.recent.since", suites: redis,
		old: "max(now-r.lasts, r", new: "max(0*r.lasts, r",
	},
	{
		name: "recall-until", breaks: "a check is judged at the time when Redis said it", in: "memory.Snapshots.Recall", suites: redis,
		old: "at, exact = local+x[snapshotOffset], ", new: "at, exact = x[snapshotTime], ",
	},
	{
		name: "recall-wait", breaks: "a wait that is told without a call ends before the denial", in: "redis.postpone", suites: redis,
		old: "r.Retry += max(ahead, 0)", new: "r.Retry += 0",
	},
	{
		name: "recall-step", breaks: "a key is denied by what was said before Redis' clock was set", in: "redis.decider.recalls", suites: redis,
		old: "return ahead >= 0", new: "return true",
	},
	{
		name: "recall-admitted", breaks: "a check that what Redis said does not deny is not sent", in: "outage.Fallback.Recall", suites: redis,
		old: "return !check.Admitted", new: "return true",
	},
	{
		name: "recall-holds", breaks: "a zone with permits is denied without a call", in: "outage.recall", suites: redis,
		old: "permit || z.Counter.Varies() {", new: "z.Counter.Varies() && (permit || true) {",
	},
	{
		name: "recall-held", breaks: "a check is denied without a call beside what others held", in: "memory.short", suites: redis,
		old: "permit || z.Held > 0 {", new: "permit {",
	},
	{
		name: "recall-epoch", breaks: "what Redis said denies after its connection was replaced", in: "redis.server.notice", suites: redis,
		old: "was != nil && was.epoch == epoch {", new: "was != nil {",
	},
	{
		name: "recall-reset", breaks: "what Redis said denies after a reset", in: "redis.recent.reset", suites: redis,
		old: "r.wasReset.Store(now + 1)", new: "r.wasReset.Store(0 * now)",
	},
	{
		name: "recall-due", breaks: "a snapshot that Redis has lost, or that it was not told more of, denies", in: "memory.Snapshots.Recall", suites: redis,
		old: "!x.due() && ", new: "",
	},
	{
		name: "recall-override", breaks: "what Redis said of one override denies under another", in: "memory.Snapshots.Recall", suites: redis,
		old: " && x.override() == z.Counter.Override\n", new: "\n",
	},
	{
		name: "recall-charged", breaks: "what Redis said before a charge after the response denies", in: "memory.Snapshots.Ask", suites: redis,
		old: "x[snapshotMarks] |= markCharged", new: "_ = x",
	},
	{
		name: "recall-charged-later", breaks: "a reply that is older than a charge after the response tells what it left", in: "memory.Snapshots.Ask", suites: redis,
		old: "max(x[snapshotTime], local+x[snapshotOffset])", new: "x[snapshotTime]",
	},
	{
		name: "recall-later", breaks: "only a denial is noted as full", in: "memory.short", suites: redis,
		old: "if z.Results[i].Remaining < z.Cost {", new: "if !z.Results[i].Admit {",
	},
	{
		name: "recall-left-at", breaks: "Redis' clock is estimated by when the reply arrived", in: "redis.decider.attempt", suites: redis,
		old: "d.o.instant(left, now)", new: "d.o.instant(d.o.Clock()+0*left, now)",
	},
	{
		name: "recall-overtaken", breaks: "an overtaken denial denies after a reset", in: "memory.Snapshots.Learn", suites: redis,
		old: "if !overtaken && short(z) {", new: "if short(z) {",
	},
	{
		name: "recall-limit", breaks: "a level that was written under another limit denies", in: "algorithms.meter.Recalls", suites: redis,
		old: "return snap[2] == 0 || snap[2] == m.limit", new: "return true",
	},
	{
		name: "recall-rules", breaks: "what Redis said of other rules denies", in: "redis.Store.Adopt", suites: redis,
		old: "s.decider.recent.reset(s.o.Clock()) // what", new: "// what",
	},
	{
		name: "handover-cut", breaks: "what a cut reply has ended ends once more", in: "outage.Handovers.send", suites: redis,
		old: "d.EndCall(some[len(r.Keys):], err)", new: "d.EndCall(some, err)",
	},
	{
		name: "combine-calls", breaks: "calls share no bound on how many are under way", in: "redis.batcher.enter", suites: redis,
		old: "if l.flying < most {", new: "if l.flying <= most {",
	},
	{
		name: "combine-rules", breaks: "a call has all waiting checks, however many rules they have", in: "redis.batcher.dequeue", suites: redis,
		old: "rules+q.rules > rulesPerCall ||", new: "rules+q.rules < 0 ||",
	},
	{
		name: "combine-join", breaks: "a check that is ready does not join a batch", in: "redis.batcher.do", suites: redis,
		old: "\t\tl.join(q)\n", new: "",
	},
	{
		name: "combine-leave", breaks: "a check that has left the queue is reported as possibly charged", in: "redis.batcher.expire", suites: redis,
		old: "q.expire(answered, errUnsent, now)", new: "q.expire(answered, errUnanswered, now)",
	},
	{
		name: "combine-next", breaks: "a call that ends starts no other", in: "redis.batcher.replace", suites: redis,
		old: "if len(l.queue) == 0 {", new: "if len(l.queue) >= 0 {",
	},
	{
		name: "combine-clock", breaks: "the timer fires only for the first deadline", in: "redis.batcher.expire", suites: redis,
		old: "\t\t\tl.wake(q.end)\n\t\t\treturn false", new: "\t\t\treturn false",
	},
	{
		name: "combine-deadline", breaks: "a check in a call waits beyond its deadline", in: "redis.batcher.expireBatch", suites: redis,
		old: "case q.state != batched:", new: "case q.state != queued:",
	},
	{
		name: "combine-once", breaks: "a failed call is counted once for each of its checks", in: "redis.conn.sendBatch", suites: redis,
		old: "err = c.failedAt(&q.cmd, q.batch[0], err)", new: "_ = c.failed(q.cmd.node, err, q.cmd.sent)",
	},
	{
		name: "combine-rest", breaks: "what an answer has to spare is not noticed", in: "redis.conn.sendSome", suites: redis,
		old: "if r.err != nil || len(r.b) > 0 {", new: "if r.err != nil {",
	},
	{
		name: "call-cut", breaks: "the replies to several calls are mixed up", in: "redis.call.cut", suites: redis,
		old: "r.next(zones[z].seen)", new: "r.next(0)",
	},
	{
		name: "call-failed", breaks: "a failed check takes the reply of the next", in: "redis.call.cut", suites: redis,
		old: "if z == 0 && flags == flagFailed {", new: "if z < 0 && flags == flagFailed {",
	},
	{
		name: "redis-sequence", breaks: "a reply to another call is taken", in: "redis.runner.eval", suites: redis,
		old: "r.err != nil || got != seq {", new: "r.err != nil || got == 0 {",
	},
	{
		name: "shared-keep", breaks: "a permit ends with its reservation", in: "stores.ZoneCheck.EndedPermits", suites: redis,
		old: "z.Counter.InFlight > 0 && z.KeepsPermit", new: "z.Counter.InFlight < 0 && z.KeepsPermit",
	},
}
