//go:build unix

package main

const (
	periodGo    = "algorithms/period.go"
	calendarLua = "algorithms/calendar.lua"
)

// calendarMutants break the arithmetic of calendar, and what it is told of periods.
var calendarMutants = []mutant{
	{
		name: "calendar-old", breaks: "what was used in an earlier period counts", file: periodGo, suites: goRules,
		old: "if start != present {", new: "if start > present {",
	},
	{
		name: "calendar-turn", breaks: "a period begins a microsecond late (> for >=)", file: periodGo, suites: goRules,
		old: "for now >= known[i+1] {", new: "for now > known[i+1] {",
	},
	{
		name: "calendar-stale", breaks: "after the periods that are known the last one goes on", file: periodGo, suites: goRules,
		old: "if known == nil || now < known[0] || now >= known[3] {", new: "if known == nil || now < known[0] {",
	},
	{
		name: "calendar-step-back", breaks: "a period ahead of the clock is not repaired", file: fixedGo, suites: goRules,
		old: "if s[1] == 0 || s[0] <= f.dates.on(now) {", new: "if s[1] == 0 || f.dates != nil || s[0] <= now {",
	},
	{
		name: "calendar-wall", breaks: "the local store ignores that the system's clock was set", file: periodGo, suites: goRules,
		old: "if d == nil || d.wall == nil {", new: "if true {",
	},
	{
		name: "calendar-end", breaks: "a period ends at a time on the system's clock, not on the rule's", file: periodGo, suites: goRules,
		old: "return now + next - on", new: "return next",
	},
	{
		name: "calendar-not-wall", breaks: "a zone of the local store follows the process's clock", file: "internal/limiter/active.go", suites: []suite{limiterTests},
		old: "in.Wall = z.env.Wall", new: "in.Wall = nil",
	},
	{
		name: "calendar-monday", breaks: "a week begins on Sunday", file: periodGo, suites: goRules,
		old: "(int(t.Weekday()) + 7 - p.first) % 7", new: "int(t.Weekday())",
	},
	{
		name: "calendar-from", breaks: "a date before the first day of its month belongs to the month", file: periodGo, suites: goRules,
		old: "if d < p.firstOf(y, m) {", new: "if false {",
	},
	{
		name: "calendar-last", breaks: "a month without its first day begins in the next", file: periodGo, suites: goRules,
		old: "return min(p.first, time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day())", new: "return p.first",
	},
	{
		name: "calendar-from-kind", breaks: "periods from another day go on with the counts", file: "algorithms/calendar.go", suites: goRules,
		old: "return \"calendar/\" + c.zone() + \"/from \" + from", new: "return \"calendar/\" + c.zone()",
	},
	{
		name: "calendar-midnight", breaks: "a day without a midnight begins at one that does not exist", file: periodGo, suites: goRules,
		old: "if at.Before(t) {", new: "if false {",
	},
	{
		name: "lua-calendar-old", breaks: "what was used in an earlier period counts", file: calendarLua, suites: redis,
		old: "elseif S ~= start then", new: "elseif S > start then",
	},
	{
		name: "lua-calendar-turn", breaks: "a period begins a microsecond late (> for >=)", file: calendarLua, suites: redis,
		old: "if t >= c then return c, d end", new: "if t > c then return c, d end",
	},
	{
		name: "lua-calendar-outside", breaks: "with arguments for another time it decides", file: calendarLua, suites: redis,
		old: "if t < a or t >= d then return nil end", new: "if t < a then return a, b end",
	},
	{
		name: "lua-calendar-told", breaks: "what was known of an earlier period is put back into this one", file: calendarLua, suites: redis,
		old: "if S == start or S > before or S == present or", new: "if S > 0 or S == present or",
	},
	{
		name: "lua-calendar-debt", breaks: "a debt of an earlier period is charged to this one", file: calendarLua, suites: redis,
		old: "if S == start then u = u +", new: "if S > 0 then u = u +",
	},
	{
		name: "calendar-ask-again", breaks: "a decision that Redis refused for its time is not asked again", file: "internal/stores/redis/decide.go", suites: redis,
		old: "if errors.Is(err, errOutside) { // the reply", new: "if false { // the reply",
	},
	{
		name: "calendar-packed-late", breaks: "the periods of an earlier time are sent on", file: "internal/stores/redis/prepared.go", suites: redis,
		old: "now >= d.from && now < d.to {", new: "now >= d.from {",
	},
	{
		name: "lua-calendar-block", breaks: "a block by a calendar does not end with the next period", file: "scripts/lua/block.lua", suites: goRules,
		old: "if stepped == OUTSIDE then return true end", new: "if stepped == OUTSIDE then return false end",
	},
}
