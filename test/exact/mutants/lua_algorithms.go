//go:build unix

package main

// redis are the suites of what runs the Lua.
var redis = []suite{outageTests, redisStore, memoryStore, acrossStores}

const (
	meterLua   = "algorithms/meter.lua"
	fixedLua   = "algorithms/fixed_window.lua"
	slidingLua = "algorithms/sliding_window.lua"
	logLua     = "algorithms/sliding_log.lua"
)

// luaMutants break the arithmetic in Lua.
var luaMutants = []mutant{
	{
		name: "lua-meter-edge", breaks: "what fills a meter exactly is denied (< for <=)", in: meterLua, suites: redis,
		old: "ok = D + (n + p) * w <= cap", new: "ok = D + (n + p) * w < cap",
	},
	{
		name: "lua-meter-held", breaks: "what unanswered requests hold does not count", in: meterLua, suites: redis,
		old: "ok = D + (n + p) * w <= cap", new: "ok = D + n * w <= cap",
	},
	{
		name: "lua-meter-cost", breaks: "the verdict ignores the cost", in: meterLua, suites: redis,
		old: "ok = D + (n + p) * w <= cap", new: "ok = D + (1 + p) * w <= cap",
	},
	{
		name: "lua-meter-queue-edge", breaks: "the last position of a queue is denied (< for <=)", in: meterLua, suites: redis,
		old: "ok = D + n * w <= cap and D <= M * l", new: "ok = D + n * w < cap and D <= M * l",
	},
	{
		name: "lua-meter-delay-unbounded", breaks: "a queue may delay for longer than its longest wait", in: meterLua, suites: redis,
		old: "ok = D + n * w <= cap and D <= M * l", new: "ok = D + n * w <= cap",
		equivalent: "a burst is refused if max_wait has no room for it, so that what keeps within the burst keeps within the wait; only a share of it may not, and shares are judged in Go",
	},
	{
		name: "lua-meter-delay-floor", breaks: "a delay is rounded down (floor for ceil)", in: meterLua, suites: redis,
		old: "delay = math.ceil(D / l)", new: "delay = math.floor(D / l)",
	},
	{
		name: "lua-meter-turn-ignored", breaks: "a queue is charged at its own delay instead of the common one", in: meterLua, suites: redis,
		old: "if turn and turn > delay then", new: "if turn and turn < 0 then",
	},
	{
		name: "lua-meter-turn-edge", breaks: "a queue's own delay loses its fraction (>= for >)", in: meterLua, suites: redis,
		old: "if turn and turn > delay then", new: "if turn and turn >= delay then",
	},
	{
		name: "lua-meter-sign", breaks: "a charge lowers the level (- for +)", in: meterLua, suites: redis,
		old: "if ok then D = D + n * w end", new: "if ok then D = D - n * w end",
	},
	{
		name: "lua-meter-step-ignored", breaks: "a bucket with a step refills continuously", in: meterLua, suites: redis,
		old: "tau = t - t % step", new: "tau = t",
	},
	{
		name: "lua-meter-last-rest", breaks: "the rest of a level below one microsecond is lost (> for >=)", in: meterLua, suites: redis,
		old: "if a >= tau and L0 > 0 then", new: "if a > tau and L0 > 0 then",
	},
	{
		name: "lua-meter-step-back", breaks: "a level ahead of the clock is not repaired", in: meterLua, suites: redis,
		old: "if a - tau - 1 > most0 * w0 / l0 then", new: "if a - tau - 8 > 8 * most0 * w0 / l0 then",
	},
	{
		name: "lua-meter-step-back-one", breaks: "a clock set back by one microsecond fills the meter", in: meterLua, suites: redis,
		old: "if a - tau - 1 > most0 * w0 / l0 then", new: "if a - tau > most0 * w0 / l0 then",
	},
	{
		name: "lua-meter-repair", breaks: "a repaired meter is empty instead of full", in: meterLua, suites: redis,
		old: "D, stepped = cap, true", new: "D, stepped = 0, true",
	},
	{
		name: "lua-meter-other-burst", breaks: "a level under a larger burst is taken for a step of the clock", in: meterLua, suites: redis,
		old: "> most0 * w0 / l0", new: "> cap / w * w0 / l0",
	},
	{
		name: "lua-meter-rescale-floor", breaks: "a level is rounded down to the new units", in: meterLua, suites: redis,
		old: "floor(part * w / w0) + 1 end", new: "floor(part * w / w0) end",
	},
	{
		name: "lua-meter-rescale-uncapped", breaks: "a level of a larger burst stays above the new one", in: meterLua, suites: redis,
		old: "if used >= top / w or D > top then D = top end", new: "if used < 0 then D = top end",
		equivalent: "what is above the capacity is denied however much it is, nothing is written then, and Go finds the retry; a charge after the fact keeps all that a rule can have written",
	},
	{
		name: "lua-meter-rescale-min", breaks: "a level in new units is capped by whole units only (a dropped condition)", in: meterLua, suites: redis,
		old: "if used >= top / w or D > top then D = top end", new: "if used >= top / w then D = top end",
		equivalent: "less than the burst in whole units and less than a unit more, rounded up, is at most the burst; the comparison says so",
	},
	{
		name: "lua-meter-debt-unbounded", breaks: "a debt has no bound (a dropped min)", in: meterLua, suites: redis,
		old: "D = math.max(D, math.min(D + math.min(n, highest) * w, highest * w))", new: "D = D + math.min(n, highest) * w",
	},
	{
		name: "lua-meter-debt-forgiven", breaks: "a charge lowers the debt from a larger burst (a dropped max)", in: meterLua, suites: redis,
		old: "D = math.max(D, math.min(D + math.min(n, highest) * w, highest * w))", new: "D = math.min(D + math.min(n, highest) * w, highest * w)",
	},
	{
		name: "lua-meter-debt-overflow", breaks: "a huge charge is not cut before it is multiplied (a dropped min)", in: meterLua, suites: redis,
		old: "math.min(D + math.min(n, highest) * w, highest * w)", new: "math.min(D + n * w, highest * w)",
		equivalent: "doubles do not wrap: a product that is no longer exact is above twice the capacity, to which it is cut; Go's integers wrap, and need it",
	},
	{
		name: "lua-meter-debt-smaller", breaks: "a charge through a smaller burst drops the use above it", in: meterLua, suites: redis,
		old: "top = math.max(cap, kept * w)", new: "top = cap",
	},
	{
		name: "lua-meter-debt-burst", breaks: "what was used above a smaller burst is taken for a step of the clock after a charge", in: meterLua, suites: redis,
		old: "most = math.max(most, kept, math.ceil(D / w))", new: "most = math.max(most, math.ceil(D / w))",
	},
	{
		name: "lua-meter-follows", breaks: "a raised limit frees nobody", in: meterLua, suites: redis,
		old: "stepped = 'FOLLOWS'", new: "stepped = false",
	},
	{
		name: "lua-meter-follows-lower", breaks: "a lowered limit slows what was used under a higher one", in: meterLua, suites: redis,
		old: "if p and L0 < L then", new: "if p then",
	},
	{
		name: "lua-meter-follows-burst", breaks: "what was used above a burst that was lowered with a raised limit is taken for a step of the clock", in: meterLua, suites: redis,
		old: "if D > cap then most = math.max(most, kept) end", new: "if D < 0 then most = math.max(most, kept) end",
	},
	{
		name: "lua-meter-over-capacity", breaks: "what a charge after the response leaves above the burst is taken for a step of the clock", in: meterLua, suites: redis,
		old: "D > cap and most or cap / w", new: "cap / w",
	},
	{
		name: "lua-meter-always-most", breaks: "a clock step of up to two capacities is not noticed in any state", in: meterLua, suites: redis,
		old: "D > cap and most or cap / w", new: "most",
	},
	{
		name: "lua-meter-rest", breaks: "the rest of a level below one microsecond is lost when written", in: meterLua, suites: redis,
		old: "pack('<dddd', tau + q, f, L", new: "pack('<dddd', tau + q, 0, L",
	},
	{
		name: "lua-fixed-edge", breaks: "the last of a limit is denied (< for <=)", in: fixedLua, suites: redis,
		old: "ok = u + n + p <= L", new: "ok = u + n + p < L",
	},
	{
		name: "lua-fixed-held", breaks: "what unanswered requests hold does not count", in: fixedLua, suites: redis,
		old: "ok = u + n + p <= L", new: "ok = u + n <= L",
	},
	{
		name: "lua-fixed-cost", breaks: "the verdict ignores the cost", in: fixedLua, suites: redis,
		old: "ok = u + n + p <= L", new: "ok = u + min(n, 1) + p <= L",
	},
	{
		name: "lua-fixed-end", breaks: "a window lasts a microsecond longer (> for >=)", in: fixedLua, suites: redis,
		old: "if t >= S + W then u = 0 end", new: "if t > S + W then u = 0 end",
	},
	{
		name: "lua-fixed-align", breaks: "align is ignored when a window opens", in: fixedLua, suites: redis,
		old: "local start = align == 1 and t - t % W or t", new: "local start = t",
	},
	{
		name: "lua-fixed-step-back", breaks: "a window that begins ahead of the clock is not repaired", in: fixedLua, suites: redis,
		old: "if u > 0 and S > t then", new: "if u > 0 and S > t + W then",
	},
	{
		name: "lua-fixed-debt-unbounded", breaks: "a debt has no bound (a dropped min)", in: fixedLua, suites: redis,
		old: "n = math.min(n, math.max(0, 2 * L - u))", new: "n = n + 0",
	},
	{
		name: "lua-fixed-debt-forgiven", breaks: "a charge lowers the debt from a larger limit (a dropped max)", in: fixedLua, suites: redis,
		old: "n = math.min(n, math.max(0, 2 * L - u))", new: "n = math.min(n, 2 * L - u)",
	},
	{
		name: "lua-sliding-edge", breaks: "the last of a limit is denied (< for <=)", in: slidingLua, suites: redis,
		old: "ok = u + n + p <= L", new: "ok = u + n + p < L",
	},
	{
		name: "lua-sliding-held", breaks: "what unanswered requests hold does not count", in: slidingLua, suites: redis,
		old: "ok = u + n + p <= L", new: "ok = u + n <= L",
	},
	{
		name: "lua-sliding-oldest", breaks: "the oldest part does not count", in: slidingLua, suites: redis,
		old: "for x = 2, k + 2 - at + newest do u", new: "for x = 2, k + 1 - at + newest do u",
	},
	{
		name: "lua-sliding-age", breaks: "the oldest part is dropped when its time moves on (>= for >)", in: slidingLua, suites: redis,
		old: "not c or age > words - 2 then", new: "not c or age >= words - 2 then",
	},
	{
		name: "lua-sliding-shift", breaks: "parts move by one too many", in: slidingLua, suites: redis,
		old: "rep('\\0', (age - 1) * 8)", new: "rep('\\0', age * 8)",
	},
	{
		name: "lua-sliding-step-back", breaks: "parts ahead of the clock are not repaired", in: slidingLua, suites: redis,
		old: "if newest > ahead then newest, stepped = ahead, true end", new: "if newest > ahead + k then newest, stepped = ahead, true end",
	},
	{
		name: "lua-sliding-reset", breaks: "a time to live is a part too short", in: slidingLua, suites: redis,
		old: "reset = (at + k + 1) * b - t", new: "reset = (at + k) * b - t",
	},
	{
		name: "lua-sliding-reset-repaired", breaks: "the TTL of a repaired key is one part too short", in: slidingLua, suites: redis,
		old: "reset = (newest - x + 2 + k + 1) * b - t", new: "reset = (newest - x + 2 + k) * b - t",
	},
	{
		name: "lua-sliding-debt-forgiven", breaks: "a charge lowers the debt from a larger limit (a dropped max)", in: slidingLua, suites: redis,
		old: "n, at = math.min(n, math.max(0, 2 * L - u)), ahead", new: "n, at = math.min(n, 2 * L - u), ahead",
	},
	{
		name: "lua-log-edge", breaks: "a stamp counts a microsecond too long", in: logLua, suites: redis,
		old: "edge.\n  local edge = t + excess - W", new: "edge.\n  local edge = t + excess - W - 1",
	},
	{
		name: "lua-log-cost", breaks: "the verdict ignores the cost", in: logLua, suites: redis,
		old: "ok = live + n + p <= L", new: "ok = live + min(n, 1) + p <= L",
	},
	{
		name: "lua-log-limit", breaks: "the last of a limit is denied (< for <=)", in: logLua, suites: redis,
		old: "ok = live + n + p <= L", new: "ok = live + n + p < L",
	},
	{
		name: "lua-log-held", breaks: "what unanswered requests hold does not count", in: logLua, suites: redis,
		old: "ok = live + n + p <= L", new: "ok = live + n <= L",
	},
	{
		name: "lua-log-place", breaks: "the wrong stamp determines the retry (off by one)", in: logLua, suites: redis,
		old: "local leaves, place = 0, h - L + n - 1", new: "local leaves, place = 0, h - L + n",
	},
	{
		name: "lua-log-oldest", breaks: "more is left when the second oldest stamp leaves", in: logLua, suites: redis,
		old: "or stamp(z, s, off, C, h - live) + W", new: "or stamp(z, s, off, C, h - live + 1) + W",
	},
	{
		name: "lua-log-overwrite", breaks: "stamps that are still in the window are overwritten", in: logLua, suites: redis,
		old: "if n > C or over >= 0 and n > 0 and stamp(z, s, off, C, over) > edge then", new: "if n > C then",
	},
	{
		name: "lua-log-grow", breaks: "the ring grows a stamp too late", in: logLua, suites: redis,
		old: "local over = h + n - 1 - C", new: "local over = h + n - 2 - C",
	},
	{
		name: "lua-log-move", breaks: "a ring that grows loses its oldest stamp", in: logLua, suites: redis,
		old: "read(z, off, C, h, kept)) end", new: "read(z, off, C, h, kept - 1)) end",
	},
	{
		name: "lua-log-size", breaks: "a ring grows to the limit though more is owed (a dropped condition)", in: logLua, suites: redis,
		old: "if size < n or size > L and n <= L then", new: "if size < n or size > L then",
	},
	{
		name: "lua-log-in-place", breaks: "a ring that has wrapped grows without being unwrapped", in: logLua, suites: redis,
		old: "if h == C and C > 0 and", new: "if h >= C and C > 0 and",
	},
	{
		name: "lua-log-repaired-size", breaks: "a repaired ring has no room for the charge", in: logLua, suites: redis,
		old: "local size = ring_size(all + n, all, L, C0)", new: "local size = all",
	},
	{
		name: "lua-log-last", breaks: "the last stamp is not moved back by a repair", in: logLua, suites: redis,
		old: "last = last - excess\n", new: "last = last - 0\n",
	},
	{
		name: "lua-log-debt-unbounded", breaks: "a debt has no bound (a dropped min)", in: logLua, suites: redis,
		old: "min(n, L, 2 * L - count(", new: "min(n, 2 * L - count(",
	},
	{
		name: "lua-log-owed", breaks: "debts grow a log without a bound", in: logLua, suites: redis,
		old: "min(n, L, 2 * L - count(z, s, off, C, max(0, h - C), h, edge))", new: "min(n, L)",
	},
	{
		name: "lua-log-wrap", breaks: "writes past the end of a ring have the wrong offset", in: logLua, suites: redis,
		old: "= off, sub(stamps, room + 1)", new: "= off + 8, sub(stamps, room + 1)",
	},
	{
		name: "lua-reserve", breaks: "two rings lie on top of each other", in: logLua, suites: redis,
		old: "    z.tail = to + size * 8\n    if kept", new: "    if kept",
	},
	{
		name: "lua-log-reset", breaks: "a time to live is a window too short", in: logLua, suites: redis,
		old: "new, reset = pack('<dddd', h, C, off, last), max(0, last + W - t)", new: "new, reset = pack('<dddd', h, C, off, last), max(0, last - t)",
	},
}
