//go:build unix

package main

const (
	calendarLua = "algorithms/calendar.lua"
)

// calendarMutants break the arithmetic of calendar, and what it is told of periods.
var calendarMutants = []mutant{
	{
		name: "calendar-old", breaks: "what was used in an earlier period counts", in: "algorithms.dates.end", suites: goRules,
		old: "if start != present {", new: "if start > present {",
	},
	{
		name: "calendar-turn", breaks: "a period begins a microsecond late (> for >=)", in: "algorithms.dates.find", suites: goRules,
		old: "for now >= known[i+1] {", new: "for now > known[i+1] {",
	},
	{
		name: "calendar-stale", breaks: "after the periods that are known the last one goes on", in: "algorithms.dates.find", suites: goRules,
		old: "if known == nil || now < known[0] || now >= known[3] {", new: "if known == nil || now < known[0] {",
	},
	{
		name: "calendar-step-back", breaks: "a period ahead of the clock is not repaired", in: "algorithms.fixedWindow.Repair", suites: goRules,
		old: "if s[1] == 0 || s[0] <= f.dates.on(now) {", new: "if s[1] == 0 || f.dates != nil || s[0] <= now {",
	},
	{
		name: "calendar-wall", breaks: "the local store ignores that the system's clock was set", in: "algorithms.dates.on", suites: goRules,
		old: "if d == nil || d.wall == nil {", new: "if true {",
	},
	{
		name: "calendar-end", breaks: "a period ends at a time on the system's clock, not on the rule's", in: "algorithms.dates.end", suites: goRules,
		old: "return now + next - on", new: "return next",
	},
	{
		name: "calendar-not-wall", breaks: "a zone of the local store follows the process's clock", in: "limiter.setCompiler.compile", suites: []suite{limiterTests},
		old: "in.Wall = z.env.Wall", new: "in.Wall = nil",
	},
	{
		name: "calendar-monday", breaks: "a week begins on Sunday", in: "algorithms.periods.nth", suites: goRules,
		old: "(int(t.Weekday()) + 7 - p.first) % 7", new: "int(t.Weekday())",
	},
	{
		name: "calendar-from", breaks: "a date before the first day of its month belongs to the month", in: "algorithms.periods.nth", suites: goRules,
		old: "if d < p.firstOf(y, m) {", new: "if false {",
	},
	{
		name: "calendar-last", breaks: "a month without its first day begins in the next", in: "algorithms.periods.firstOf", suites: goRules,
		old: "return min(p.first, time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day())", new: "return p.first",
	},
	{
		name: "calendar-from-kind", breaks: "periods from another day go on with the counts", in: "algorithms.Calendar.Kind", suites: goRules,
		old: "return \"calendar/\" + c.zone() + \"/from \" + from", new: "return \"calendar/\" + c.zone()",
	},
	{
		name: "calendar-midnight", breaks: "a day without a midnight begins at one that does not exist", in: "algorithms.periods.start", suites: goRules,
		old: "if at.Before(t) {", new: "if false {",
	},
	{
		name: "lua-calendar-old", breaks: "what was used in an earlier period counts", in: calendarLua, suites: redis,
		old: "elseif S ~= start then", new: "elseif S > start then",
	},
	{
		name: "lua-calendar-turn", breaks: "a period begins a microsecond late (> for >=)", in: calendarLua, suites: redis,
		old: "if t >= c then return c, d end", new: "if t > c then return c, d end",
	},
	{
		name: "lua-calendar-outside", breaks: "with arguments for another time it decides", in: calendarLua, suites: redis,
		old: "if t < a or t >= d then return nil end", new: "if t < a then return a, b end",
	},
	{
		name: "lua-calendar-told", breaks: "what was known of an earlier period is put back into this one", in: calendarLua, suites: redis,
		old: "if S == start or S > before or S == present or", new: "if S > 0 or S == present or",
	},
	{
		name: "lua-calendar-debt", breaks: "a debt of an earlier period is charged to this one", in: calendarLua, suites: redis,
		old: "if S == start then u = u +", new: "if S > 0 then u = u +",
	},
	{
		name: "calendar-ask-again", breaks: "a decision that Redis refused for its time is not asked again", in: "redis.decider.call", suites: redis,
		old: "if errors.Is(err, errOutside) { // the reply", new: "if false { // the reply",
	},
	{
		name: "calendar-packed-late", breaks: "the periods of an earlier time are sent on", in: "redis.prepared.rulesAt", suites: redis,
		old: "now >= d.from && now < d.to {", new: "now >= d.from {",
	},
	{
		name: "lua-calendar-block", breaks: "a block by a calendar does not end with the next period", in: "scripts/lua/block.lua", suites: goRules,
		old: "if stepped == OUTSIDE then return true end", new: "if stepped == OUTSIDE then return false end",
	},
}
