//go:build unix

package main

// permitMutants break what requests hold until they are answered.
var permitMutants = []mutant{
	{
		name: "permits-unseen", breaks: "a check that holds nothing does not see what others hold", in: "redis.readsPermits", suites: redis,
		old: "return permit || z.SeesHeld", new: "return permit",
	},
	{
		name: "permits-unseen-moved", breaks: "a check that met a moving slot never sees again what others hold", in: "redis.decider.callFirstKeys", suites: redis,
		old: "if z.SeesHeld = saw[i]; saw[i] {", new: "if saw[i] {",
	},
	{
		name: "lua-permits-lapse", breaks: "permits that are not renewed never lapse", in: permitsLua, suites: redis,
		old: "if h.first <= t or h.first", new: "if h.first < 0 or h.first",
	},
	{
		name: "lua-permits-lapse-all", breaks: "all permits lapse with the first", in: permitsLua, suites: redis,
		old: "if lapse > t then", new: "if lapse > t + LAPSE then",
	},
	{
		name: "lua-permits-lapse-cost", breaks: "the cost of lapsed permits remains", in: permitsLua, suites: redis,
		old: "h.count, h.cost, h.first = 0, 0, t + LAPSE\n", new: "h.count, h.first = 0, t + LAPSE\n",
	},
	{
		name: "lua-permits-silent-free", breaks: "what a killed instance held is free", in: permitsLua, suites: redis,
		old: "if lapse <= t and cost + reserved + others > 0 then", new: "if lapse < 0 and cost + reserved + others > 0 then",
	},
	{
		name: "lua-permits-silent-uncharged", breaks: "what a killed instance held is free half a minute later", in: permitsLua, suites: redis,
		old: "h.unsettled = h.unsettled + cost", new: "h.unsettled = 0",
	},
	{
		name: "lua-permits-silent-at-once", breaks: "what all instances hold is charged after an outage", in: permitsLua, suites: redis,
		old: "if o == SILENT then", new: "if lapse > 0 then",
	},
	{
		name: "lua-permits-silent-denied", breaks: "a denied check does not note that an instance is silent", in: permitsLua, suites: redis,
		old: "lapse, h.changed = t + LAPSE, true", new: "lapse = t + LAPSE",
	},
	{
		name: "lua-permits-silent-expires", breaks: "what a killed instance held is free if nobody asks for half a minute", in: permitsLua, suites: redis,
		old: "(h.cost > 0 and KEPT or 0)", new: "0",
	},
	{
		name: "permits-prepaid", breaks: "what others have charged for an instance is charged again", in: "redis.record.unpaid", suites: redis,
		old: "return charge - paid", new: "return charge",
	},
	{
		name: "permits-prepaid-twice", breaks: "what others have charged for an instance pays for two responses", in: "redis.record.unpaid", suites: redis,
		old: "rec.prepaid -= paid", new: "rec.prepaid -= 0",
	},
	{
		name: "permits-prepaid-granted", breaks: "what was held since the last report is not known to be charged", in: "redis.permits.answered", suites: redis,
		old: "rec.told += r.cost", new: "rec.told += 0",
	},
	{
		name: "permits-prepaid-ended", breaks: "what may have been given back is taken for charged", in: "redis.record.arrived", suites: redis,
		old: "rec.told = min(rec.told, s.cost)", new: "rec.told += 0",
	},
	{
		name: "permits-prepaid-lost", breaks: "what Redis has lost is taken for charged", in: "redis.record.isMissing", suites: redis,
		old: "if now-rec.kept < 2*unsure.Microseconds() {", new: "if now < 0 {",
	},
	{
		name: "lua-permits-lapse-took", breaks: "permits taken since a report lapse with another instance's", in: permitsLua, suites: redis,
		old: "h.count + held + took + other, h.cost", new: "h.count + held + other, h.cost",
	},
	{
		name: "lua-permits-lapse-reserved", breaks: "costs held since a report lapse with another instance's", in: permitsLua, suites: redis,
		old: "h.cost + cost + reserved + others, min", new: "h.cost + cost + others, min",
	},
	{
		name: "lua-permits-clock", breaks: "permits taken before the clock was set back lapse hours later", in: permitsLua, suites: redis,
		old: "if h.first <= t or h.first > t + LAPSE then", new: "if h.first <= t then",
	},
	{
		name: "lua-permits-clock-min", breaks: "permits taken before the clock was set back keep their lapse (a dropped min)", in: permitsLua, suites: redis,
		old: "lapse = min(lapse, t + LAPSE)", new: "lapse = lapse + 0",
	},
	{
		name: "lua-permits-clock-denied", breaks: "a denied check does not repair permits after the clock was set back", in: permitsLua, suites: redis,
		old: "return h.changed or", new: "return h.changed and",
	},
	{
		name: "lua-permits-first", breaks: "the earliest lapse is lost (a dropped min)", in: permitsLua, suites: redis,
		old: "h.cost + cost + reserved + others, min(h.first, lapse)", new: "h.cost + cost + reserved + others, h.first",
	},
	{
		name: "lua-permits-write-first", breaks: "a report delays the lapse of other instances (a dropped min)", in: permitsLua, suites: redis,
		old: "min(h.first, t + LAPSE)) .. s", new: "t + LAPSE) .. s",
	},
	{
		name: "lua-permits-id", breaks: "an entry is found in the middle of another", in: permitsLua, suites: redis,
		old: "while x and x % ENTRY ~= FIRST + 1 do", new: "while x and x % ENTRY == -1 do",
	},
	{
		name: "lua-permits-older", breaks: "an older report replaces a newer one", in: permitsLua, suites: redis,
		old: "if c > h.c then", new: "if c ~= h.c then",
	},
	{
		name: "lua-permits-naive", breaks: "a report forgets what the call under way was granted", in: permitsLua, suites: redis,
		old: "if under_way == h.c then", new: "if under_way < 0 then",
	},
	{
		name: "lua-permits-other-kept", breaks: "what an answered call was granted counts twice", in: permitsLua, suites: redis,
		old: "elseif under_way ~= h.o then", new: "elseif under_way < 0 then",
	},
	{
		name: "lua-permits-other-dropped", breaks: "a call that was overtaken loses what it was granted with the second report after it", in: permitsLua, suites: redis,
		old: "elseif under_way ~= h.o then", new: "else",
	},
	{
		name: "lua-permits-took", breaks: "a report adds to what the last was granted", in: permitsLua, suites: redis,
		old: "= c, held, cost, 0, 0, under_way", new: "= c, held, cost, h.took, h.reserved, under_way",
	},
	{
		name: "lua-permits-stale", breaks: "a call that was given up takes a permit", in: permitsLua, suites: redis,
		old: "elseif c < h.c and c ~= h.o then", new: "elseif c < 0 then",
	},
	{
		name: "lua-permits-overtaken", breaks: "a check that a later call overtook is denied", in: permitsLua, suites: redis,
		old: "elseif c < h.c and c ~= h.o then", new: "elseif c < h.c then",
	},
	{
		name: "lua-permits-known", breaks: "what was acknowledged is charged again after Redis lost its memory", in: permitsLua, suites: redis,
		old: "charged - max(h.charged, known)", new: "charged - h.charged",
	},
	{
		name: "lua-permits-charged", breaks: "a charge whose reply was lost is made again", in: permitsLua, suites: redis,
		old: "charged - max(h.charged, known)", new: "charged - known",
	},
	{
		name: "lua-permits-charged-lost", breaks: "Redis does not remember what it charged", in: permitsLua, suites: redis,
		old: "h.charged = max(h.charged, charged)\n", new: "h.charged = 0\n",
	},
	{
		name: "lua-permits-restart", breaks: "charges are lost after their numbers have begun again", in: permitsLua, suites: redis,
		old: "if charged < h.charged then h.charged = 0 end", new: "",
	},
	{
		name: "lua-permits-take", breaks: "a check that was overtaken takes its permit with the later report", in: permitsLua, suites: redis,
		old: "if c == h.c then\n    h.took", new: "if c then\n    h.took",
	},
	{
		name: "lua-permits-write", breaks: "a report removes the entries of other instances", in: permitsLua, suites: redis,
		old: ".. own .. sub(s, h.at + ENTRY)", new: ".. own",
	},
	{
		name: "lua-permits-lost", breaks: "a denied check does not put back what Redis has lost", in: permitsLua, suites: redis,
		old: "h.missing and h.held > 0", new: "h.missing and h.held < 0",
	},
	{
		name: "lua-permits-given-up", breaks: "a call that was given up is admitted", in: generalLua, suites: redis,
		old: "if z.holds.stale then", new: "if false then",
	},
	{
		name: "lua-permits-check-charge", breaks: "a check that overtakes a report forgets what the report charges", in: generalLua, suites: redis,
		old: "if not z.due or z.due == 0 then return z, after end", new: "if z.key then return z, after end",
	},
	{
		name: "lua-permits-blocked-charge", breaks: "a check of a blocked key charges for requests, and nobody tells what that has used", in: generalLua, suites: redis,
		old: "if z.block and block_read(z.block, z.since) > t and not", new: "if false and not",
	},
	{
		name: "lua-permits-blocked-lost", breaks: "a check of a blocked key reports charges that it has not made", in: generalLua, suites: redis,
		old: "> t and not permits_lost(z.holds) then", new: "> 0 then",
	},
	{
		name: "lua-permits-report-charge", breaks: "a report does not charge responses", in: generalLua, suites: redis,
		old: "if due > 0 then\n    zone_open", new: "if due < 0 then\n    zone_open",
	},
	{
		name: "lua-hold-cost", breaks: "a permit reserves no cost", in: generalLua, suites: redis,
		old: "permits_take(z.holds, z.report, z.hold == 2 and z.n or 0)", new: "permits_take(z.holds, z.report, 0)",
	},
	{
		name: "lua-permit-cost", breaks: "a permit without a reservation reserves the cost", in: generalLua, suites: redis,
		old: "permits_take(z.holds, z.report, z.hold == 2 and z.n or 0)", new: "permits_take(z.holds, z.report, z.n)",
	},
	{
		name: "lua-beat-missing", breaks: "an instance does not notice that Redis lost its memory", in: generalLua, suites: redis,
		old: "or '', {}, MISSING", new: "or '', {}, 0",
	},
	{
		name: "permits-stored", breaks: "a change that Redis was not told of counts as told", in: "redis.record.isStored", suites: redis,
		old: "rec.stored = max(rec.stored, s.number)", new: "rec.stored = max(rec.due, s.number)",
	},
	{
		name: "permits-acked", breaks: "a charge that Redis was not told of counts as made", in: "redis.charges.acknowledge", suites: redis,
		old: "c.acked = max(c.acked, total)", new: "c.acked = max(c.total, total)",
	},
	{
		name: "permits-denied", breaks: "the report of a denied check counts as stored", in: "redis.permits.answered", suites: redis,
		old: "if flags&flagCharged == 0 {\n\t\tif rec", new: "if flags&flagCharged == 0 && r.permit == nil {\n\t\tif rec",
	},
	{
		name: "permits-unknown", breaks: "Redis is not told that a call without a reply does not count", in: "redis.permits.arrive", suites: redis,
		old: "case err != nil && ran && r.permit != nil:", new: "case err != nil && !ran:",
	},
	{
		name: "permits-granted", breaks: "what was granted is not reported", in: "redis.permits.answered", suites: redis,
		old: "\t\tp.add(rec, 1, r.cost)\n", new: "\t\tp.add(rec, 1, r.cost)\n\t\trec.held--\n",
	},
	{
		name: "permits-abandoned", breaks: "what a caller that left was granted stays held", in: "redis.permits.abandon", suites: redis,
		old: "\t\t\tp.add(r.rec, -1, -r.cost)\n", new: "",
	},
	{
		name: "permits-abandoned-untold", breaks: "Redis is not told that a caller has left", in: "redis.permits.abandon", suites: redis,
		old: "-r.cost)\n\t\t\tp.changed(r.rec)", new: "-r.cost)",
	},
	{
		name: "permits-under-way", breaks: "a report does not name the call under way", in: "redis.record.other", suites: redis,
		old: "if s.number != rec.last.number {", new: "if s.number < 0 {",
	},
	{
		name: "permits-answered", breaks: "an answered call counts as under way", in: "redis.permits.arrive", suites: redis,
		old: "\t\t\tr.rec.arrived(r.sent, ran)\n", new: "",
	},
	{
		name: "permits-dropped-under-way", breaks: "a record is forgotten while a call reports it", in: "redis.record.ended", suites: redis,
		old: " && len(rec.underWay) == 0 &&\n", new: " &&\n",
	},
	{
		name: "permits-unnamed", breaks: "Redis forgets what a call was granted that the next report does not name", in: "redis.record.leaves", suites: redis,
		old: "if len(rec.underWay) == callsInFlight {", new: "if len(rec.underWay) < 0 {",
	},
	{
		name: "permits-overtaken", breaks: "a check that leaves while two others of its key are under way fails", in: "redis.decider.callOnce", suites: redis,
		old: "for errors.Is(err, errOvertaken) {", new: "for err == nil && errors.Is(err, errOvertaken) {",
	},
	{
		name: "permits-overtaken-end", breaks: "the end of a request that leaves while two calls of its key are under way is told with the next request", in: "redis.permits.arrive", suites: redis,
		old: "flags != flagFailed && r.sent.number != overtaken:", new: "flags != flagFailed:",
	},
	{
		name: "permits-one-report", breaks: "each check of a call reports on its own", in: "redis.permits.fill", suites: redis,
		old: "if rec.last.number <= before && rec", new: "if rec",
	},
	{
		name: "permits-base", breaks: "a new record counts charges from zero", in: "redis.permits.recordOf", suites: redis,
		old: "charges: chargesFrom(p.charged),", new: "charges: chargesFrom(0),",
	},
	{
		name: "permits-kinds", breaks: "rules of two kinds share an entry", in: "redis.permits.recordOf", suites: redis,
		old: "id: p.id ^ kinds.Sum64(),", new: "id: p.id ^ kinds.Sum64()*0,",
	},
	{
		name: "permits-forgotten", breaks: "a record is forgotten before Redis knows of its end", in: "redis.record.ended", suites: redis,
		old: "(rec.isKnown() || lapsed)", new: "(rec.isKnown() || lapsed || now > 0)",
	},
	{
		name: "permits-kept", breaks: "a record is kept after its end", in: "redis.permits.forget", suites: redis,
		old: "\tdelete(p.records, rec.value)\n", new: "",
	},
	{
		name: "permits-unsure", breaks: "a charge of unknown outcome is repeated when its entry has lapsed", in: "redis.charges.giveUp", suites: redis,
		old: "now-c.since <= unsure.Microseconds()", new: "now-c.since <= 10*unsure.Microseconds()",
	},
	{
		name: "permits-refused", breaks: "a charge that Redis has refused throughout a long outage is lost", in: "redis.permits.drop", suites: redis,
		old: "unsaid{rec.zone, refused, errOpen}", new: "unsaid{rec.zone, refused, errUnanswered}",
	},
	{
		name: "permits-unsure-owed", breaks: "a charge of unknown outcome is made again as a debt", in: "redis.permits.arrive", suites: redis,
		old: "ran := err == nil || mayHaveRun(err)", new: "ran := err == nil",
	},
	{
		name: "permits-denied-owed", breaks: "a charge that a denied check has made is made again as a debt", in: "redis.permits.arrive", suites: redis,
		old: "ran := err == nil || mayHaveRun(err)", new: "ran := err != nil && mayHaveRun(err)",
	},
	{
		name: "permits-under-way-owed", breaks: "a charge that a call under way reports is owed too", in: "redis.permits.drop", suites: redis,
		old: "rec.charges.giveUp(rec.reported(), now)", new: "rec.charges.giveUp(0, now)",
	},
	{
		name: "permits-since", breaks: "a charge is given up as if it had waited from the beginning", in: "redis.charges.add", suites: redis,
		old: "\t\tc.since = now\n", new: "",
	},
	{
		name: "permits-end-untold", breaks: "Redis is not told that a request has ended", in: "redis.permits.end", suites: redis,
		old: "-z.HeldCost())\n\trec.changed(p.number + 1)\n", new: "-z.HeldCost())\n",
	},
	{
		name: "permits-end-late", breaks: "a release that failed is not repeated", in: "redis.permits.endReported", suites: redis,
		old: "rec.ending == 0 && !rec.isKnown() {", new: "rec.ending == 0 && rec.isKnown() {",
	},
	{
		name: "permits-renewed-ending", breaks: "a renewal makes the charges of requests that end, and nobody tells what that has used", in: "redis.permits.include", suites: redis,
		old: "if rec.ending > 0 {", new: "if rec.ending < 0 {",
	},
	{
		name: "permits-keep", breaks: "a permit ends with its reservation", in: "redis.permits.end", suites: redis,
		old: "permits := z.EndedPermits()\n\tp.add(", new: "permits := int64(1)\n\tp.add(",
	},
	{
		name: "permits-given-up", breaks: "a permit stays held whose reply cannot be used", in: "redis.permits.giveUp", suites: redis,
		old: "\t\t\tp.releaseLater(z)\n", new: "",
	},
	{
		name: "permits-renewed-early", breaks: "permits are renewed with every round", in: "redis.permits.due", suites: redis,
		old: "now-rec.at < renewEvery.Microseconds() &&", new: "now-rec.at < 0 &&",
	},
	{
		name: "permits-renewed-late", breaks: "permits are renewed after they have lapsed", in: "redis.permits.due", suites: redis,
		old: "now-rec.at < renewEvery.Microseconds() &&", new: "now-rec.at < 4*renewEvery.Microseconds() &&",
	},
	{
		name: "permits-put-off", breaks: "denied checks put off the renewal of permits", in: "redis.record.denied", suites: redis,
		old: "s.left-rec.kept >= renewEvery.Microseconds()", new: "s.left-rec.kept < 0",
	},
	{
		name: "permits-lost", breaks: "permits are not reported at once when Redis lost its memory", in: "redis.permits.due", suites: redis,
		old: "&& rec.at > p.lost.Load() {", new: "{",
	},
	{
		name: "permits-round", breaks: "a renewal never ends", in: "redis.permits.due", suites: redis,
		old: "rec == nil || rec.round == p.round ||", new: "rec == nil ||",
	},
	{
		name: "permits-retry", breaks: "a renewal that failed is not repeated", in: "redis.permits.renewed", suites: redis,
		old: "\t\t\trec.repeat(p.number + 1)\n\t\t\tp.tellSoon(rec)", new: "\t\t\t_ = rec",
	},
	{
		name: "held-shared", breaks: "a key held alone is not reported", in: "outage.Fallback.Decide", suites: redis,
		old: "f.redis.Note(z, 1, z.HeldCost())", new: "_ = z",
	},
	{
		name: "held-released", breaks: "the release of a key held alone is not reported", in: "outage.Fallback.finish", suites: redis,
		old: "\t\tf.redis.Note(z, -permits, -z.HeldCost())\n", new: "",
	},
	{
		name: "held-forgotten", breaks: "records of keys held alone are kept until Redis is back", in: "redis.permits.note", suites: redis,
		old: "\tp.drop(rec) // Redis need", new: "\t// Redis need",
	},
	{
		name: "held-share-least", breaks: "an instance alone may admit nothing (a dropped max)", in: "outage.Fallback.SharePermits", suites: redis,
		old: "return max(1, n/of*1e6+n%of*1e6/of)", new: "return n/of*1e6 + n%of*1e6/of",
	},
	{
		name: "held-share-rest", breaks: "a share of permits loses its remainder", in: "outage.Fallback.SharePermits", suites: redis,
		old: "n/of*1e6+n%of*1e6/of)", new: "n/of*1e6)",
	},
	{
		name: "held-share-none", breaks: "a zone without in_flight admits one request alone", in: "outage.Fallback.SharePermits", suites: redis,
		old: "if n == 0 {", new: "if n < 0 {",
	},
	{
		name: "held-entry", breaks: "what a key holds is kept after its end", in: "memory.Permits.add", suites: redis,
		old: "if e.Held == (Held{}) {", new: "if e.Held == (Held{}) && false {",
	},
	{
		name: "permits-drain", breaks: "a store whose Redis is gone reports for ever", in: "redis.record.changed", suites: redis,
		old: "rec.due, rec.stale = next, rec.last.left", new: "rec.due, rec.stale = next, 1<<50",
	},
	{
		name: "held-reserved", breaks: "a cost that is held for another store does not count for others", in: "memory.dependsOnHeld", suites: redis,
		old: " || t.held.Load() != 0", new: "",
	},
}
