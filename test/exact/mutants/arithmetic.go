//go:build unix

package main

// goRules are the suites that look at the arithmetic in Go: against the oracle
// first, then against the arithmetic in Lua.
var goRules = []suite{arithmetic, redisStore, memoryStore, acrossStores}

// arithmeticMutants break the arithmetic in Go.
var arithmeticMutants = []mutant{
	{
		name: "meter-edge", breaks: "what fills a meter exactly is denied (>= for >)", in: "algorithms.meter.Judge", suites: goRules,
		old: "case d > most:", new: "case d >= most:",
	},
	{
		name: "meter-cost", breaks: "the verdict ignores the cost", in: "algorithms.meter.Judge", suites: goRules,
		old: "m.capacity-cost*m.w // the", new: "m.capacity-m.w // the",
	},
	{
		name: "meter-sign", breaks: "the cost is taken from the level (- for +)", in: "algorithms.meter.Judge", suites: goRules,
		old: "m.capacity-cost*m.w // the", new: "m.capacity+cost*m.w // the",
	},
	{
		name: "meter-never", breaks: "a cost of the whole burst is never admitted (>= for >)", in: "algorithms.meter.Judge", suites: goRules,
		old: "if cost > m.burst {", new: "if cost >= m.burst {",
	},
	{
		name: "meter-delay-unbounded", breaks: "a queue may delay for longer than its longest wait", in: "algorithms.meter.Judge", suites: goRules,
		old: "most = min(most, m.maxDelay*m.l)", new: "most += 0",
	},
	{
		name: "meter-delay-burst", breaks: "a queue is bounded by its wait but not by its burst (a dropped min)", in: "algorithms.meter.Judge", suites: goRules,
		old: "most = min(most, m.maxDelay*m.l)", new: "most = m.maxDelay * m.l",
	},
	{
		name: "meter-delay-floor", breaks: "a delay is rounded down", in: "algorithms.meter.Judge", suites: goRules,
		old: "Delay: cd(d, m.l)}", new: "Delay: d / m.l}",
	},
	{
		name: "meter-held-ignored", breaks: "what unanswered requests hold does not count", in: "algorithms.meter.Judge", suites: goRules,
		old: "case held > 0 && d", new: "case held < 0 && d",
	},
	{
		name: "meter-held-edge", breaks: "a cost that fills a meter exactly beside reservations is denied", in: "algorithms.meter.Judge", suites: goRules,
		old: "min(held, m.burst)*m.w > most:", new: "min(held, m.burst)*m.w >= most:",
	},
	{
		name: "meter-retry-floor", breaks: "a retry is rounded down to a microsecond or a step", in: "algorithms.meter.falls", suites: goRules,
		old: "return cd(d-to, tick*m.l) * tick", new: "return (d - to) / (tick * m.l) * tick",
	},
	{
		name: "meter-retry-one", breaks: "a retry is a microsecond or a step too long", in: "algorithms.meter.falls", suites: goRules,
		old: "return cd(d-to, tick*m.l) * tick", new: "return cd(d-to, tick*m.l)*tick + tick",
	},
	{
		name: "meter-step-retry", breaks: "a retry counts from now instead of the last step", in: "algorithms.meter.Judge", suites: goRules,
		old: "m.falls(s, d, most, t) + t - now", new: "m.falls(s, d, most, t)",
	},
	{
		name: "meter-step-reset", breaks: "a reset counts from now instead of the last step", in: "algorithms.meter.Numbers", suites: goRules,
		old: "tick)*tick + t - now", new: "tick) * tick",
	},
	{
		name: "meter-reset-rest", breaks: "a reset ignores the rest of a level below one microsecond (a dropped min)", in: "algorithms.meter.Numbers", suites: goRules,
		old: "cd(s[0]-t+min(s[1], 1), tick)", new: "cd(s[0]-t, tick)",
	},
	{
		name: "meter-reset-floor", breaks: "a reset is rounded down to a step", in: "algorithms.meter.Numbers", suites: goRules,
		old: "cd(s[0]-t+min(s[1], 1), tick)", new: "(s[0]-t+min(s[1], 1))/tick",
	},
	{
		name: "meter-changed-rate", breaks: "a level from another limit is expected to drain at the new one", in: "algorithms.meter.falls", suites: goRules,
		old: "tick := max(1, m.step)\n\tif s[2] == m.limit {", new: "tick := max(1, m.step)\n\tif s[2] > 0 {",
	},
	{
		name: "meter-changed-edge", breaks: "a retry after a changed limit is too long by what drains in a microsecond (>= for >)", in: "algorithms.meter.falls", suites: goRules,
		old: "l0, w0, m.burst) > to {", new: "l0, w0, m.burst) >= to {",
	},
	{
		name: "meter-changed-early", breaks: "a retry after a changed limit is a microsecond or a step too short", in: "algorithms.meter.falls", suites: goRules,
		old: "return hi * tick", new: "return lo * tick",
	},
	{
		name: "meter-changed-step", breaks: "a retry after a changed limit ignores the step", in: "algorithms.meter.falls", suites: goRules,
		old: "half*tick; ahead >= 0", new: "half; ahead >= 0",
	},
	{
		name: "meter-changed-last", breaks: "the last microsecond or step of a level from another limit is not searched", in: "algorithms.meter.falls", suites: goRules,
		old: "(s[0]-t)/tick+1\n", new: "(s[0]-t)/tick\n",
	},
	{
		name: "meter-changed-rest", breaks: "the rest of a level from another limit below one microsecond is lost in its retry", in: "algorithms.meter.falls", suites: goRules,
		old: "m.rescale(ahead, s[1], l0, w0, m.burst)", new: "m.rescale(ahead, 0, l0, w0, m.burst)",
	},
	{
		name: "meter-clipped", breaks: "a level above a lowered burst is cut before its retry is counted", in: "algorithms.meter.levelUpTo", suites: goRules,
		old: "\treturn (a-t)*m.l + f\n", new: "\treturn min((a-t)*m.l+f, most*m.w)\n",
	},
	{
		name: "meter-step-ignored", breaks: "a bucket with a step refills continuously", in: "algorithms.meter.at", suites: goRules,
		old: "return now - now%m.step", new: "return now",
	},
	{
		name: "meter-turn-ignored", breaks: "a queue is charged at its own delay instead of the common one", in: "algorithms.meter.Charge", suites: goRules,
		old: "turn > cd(d, m.l) {", new: "turn < 0 {",
	},
	{
		name: "meter-turn-edge", breaks: "a queue's own delay loses its fraction (>= for >)", in: "algorithms.meter.Charge", suites: goRules,
		old: "turn > cd(d, m.l) {", new: "turn >= cd(d, m.l) {",
	},
	{
		name: "meter-charge-cost", breaks: "a charge ignores the cost", in: "algorithms.meter.Charge", suites: goRules,
		old: "m.write(s, t, d+cost*m.w)", new: "m.write(s, t, d+m.w)",
	},
	{
		name: "meter-rest", breaks: "the rest of a level below one microsecond is lost when written", in: "algorithms.meter.write", suites: goRules,
		old: "t+level/m.l, level%m.l\n", new: "t+level/m.l, level%m.l-level%m.l\n",
	},
	{
		name: "meter-last-rest", breaks: "the rest of a level below one microsecond is lost when read (<= for <)", in: "algorithms.meter.levelUpTo", suites: goRules,
		old: "case a < t || s[2] < 1:", new: "case a <= t || s[2] < 1:",
	},
	{
		name: "meter-remaining", breaks: "the remaining length of a queue is one too small", in: "algorithms.meter.Numbers", suites: goRules,
		old: "queue/m.w+1)", new: "queue/m.w)",
	},
	{
		name: "meter-remaining-queue", breaks: "the remaining cost ignores the longest wait (a dropped min)", in: "algorithms.meter.Numbers", suites: goRules,
		old: "remaining = min(remaining, queue/m.w+1)", new: "remaining += 0",
	},
	{
		name: "meter-remaining-debt", breaks: "in debt less than nothing is left (a dropped max)", in: "algorithms.meter.Numbers", suites: goRules,
		old: "max(0, m.capacity-d) / m.w", new: "(m.capacity - d) / m.w",
	},
	{
		name: "meter-step-back", breaks: "a level ahead of the clock is not repaired", in: "algorithms.meter.Repair", suites: goRules,
		old: "s[0]-t <= m.ahead(s) {", new: "s[0]-t <= 8*m.ahead(s) {",
	},
	{
		name: "meter-step-back-one", breaks: "a clock set back by one microsecond fills the meter", in: "algorithms.meter.Repair", suites: goRules,
		old: "s[0]-t <= m.ahead(s) {", new: "s[0]-t < m.ahead(s) {",
	},
	{
		name: "meter-follows", breaks: "a raised limit frees nobody", in: "algorithms.Follow", suites: goRules,
		old: "|| s[2] < m.limit", new: "",
	},
	{
		name: "meter-follows-lower", breaks: "a lowered limit slows what was used under a higher one", in: "algorithms.Follow", suites: goRules,
		old: "s[2] < m.limit", new: "s[2] != m.limit",
	},
	{
		name: "meter-repair", breaks: "a repaired meter is empty instead of full", in: "algorithms.meter.Repair", suites: goRules,
		old: "m.write(s, t, m.capacity)", new: "m.write(s, t, 0)",
	},
	{
		name: "meter-over-turn", breaks: "a queue charged for the turn of a slower one is mistaken for a clock step", in: "algorithms.newMeter", suites: goRules,
		old: "max(2*burst, burst+cd(turn*m.l, m.w))", new: "2 * burst",
	},
	{
		name: "meter-over-debt", breaks: "a debt is taken for a step of the clock, and forgiven", in: "algorithms.newMeter", suites: goRules,
		old: "max(2*burst, burst+cd(turn*m.l, m.w))", new: "burst + cd(turn*m.l, m.w)",
	},
	{
		name: "meter-over-capacity", breaks: "a level above the burst is taken for a step of the clock by every rule", in: "algorithms.meter.write", suites: goRules,
		old: "\t\ts[3] = m.most\n", new: "",
	},
	{
		name: "meter-always-most", breaks: "a clock step of up to two capacities is not noticed in any state", in: "algorithms.meter.write", suites: redis,
		old: "\tif level > m.capacity {\n", new: "\tif level > 0 {\n",
	},
	{
		name: "meter-most-invalid", breaks: "the greatest debt of the greatest burst is taken for an invalid state", in: "algorithms.meter.ahead", suites: goRules,
		old: "if s[3] > 2*maxExact/w {", new: "if s[3] > maxExact/w {",
	},
	{
		name: "meter-other-burst", breaks: "a level under a larger burst is taken for a step of the clock", in: "algorithms.meter.ahead", suites: redis,
		old: "return s[3]*w/l", new: "return m.burst*w/l",
	},
	{
		name: "meter-max-turn", breaks: "the delay of the other rules is not included in the range check", in: "algorithms.newMeter", suites: goRules,
		old: "turn = max(maxDelay, sp.MaxTurn)", new: "turn = maxDelay",
	},
	{
		name: "meter-room", breaks: "products beyond 2^52 are accepted", in: "algorithms.newMeter", suites: goRules,
		old: "room -= p[0] * p[1]", new: "room -= 0",
	},
	{
		name: "meter-debt-unbounded", breaks: "a debt has no bound (a dropped min)", in: "algorithms.meter.Overdraw", suites: goRules,
		old: "max(before, min(before+min(cost, top)*m.w, top*m.w))", new: "before+min(cost, top)*m.w",
	},
	{
		name: "meter-debt-forgiven", breaks: "a charge lowers the debt from a larger burst (a dropped max)", in: "algorithms.meter.Overdraw", suites: goRules,
		old: "max(before, min(before+min(cost, top)*m.w, top*m.w))", new: "min(before+min(cost, top)*m.w, top*m.w)",
	},
	{
		name: "meter-debt-overflow", breaks: "a huge charge overflows (a dropped min)", in: "algorithms.meter.Overdraw", suites: goRules,
		old: "min(cost, top)*m.w", new: "cost*m.w",
	},
	{
		name: "meter-debt-smaller", breaks: "a charge through a smaller burst drops the use above it", in: "algorithms.meter.Overdraw", suites: redis,
		old: "m.levelUpTo(s, t, max(most, m.burst))", new: "m.level(s, t)",
	},
	{
		name: "meter-debt-burst", breaks: "what was used above a smaller burst is taken for a step of the clock after a charge", in: "algorithms.meter.Overdraw", suites: redis,
		old: "s[3] = max(s[3], most, cd(d, m.w))", new: "s[3] = max(s[3], cd(d, m.w))",
	},
	{
		name: "meter-rescale-floor", breaks: "a level is rounded down to the new units", in: "algorithms.meter.rescale", suites: goRules,
		old: "float64(w0)) + 1", new: "float64(w0))",
	},
	{
		name: "meter-rescale-uncapped", breaks: "a level of a larger burst stays above the new one", in: "algorithms.meter.rescale", suites: goRules,
		old: "\tif used >= most {\n\t\treturn most * m.w\n\t}\n\tlevel := used * m.w\n\tif part > 0 {\n\t\tlevel += int64(float64(part)*float64(m.w)/float64(w0)) + 1\n\t}\n\treturn min(level, most*m.w)",
		new: "\tlevel := used * m.w\n\tif part > 0 {\n\t\tlevel += int64(float64(part)*float64(m.w)/float64(w0)) + 1\n\t}\n\treturn level",
	},
	{
		name: "meter-rescale-overflow", breaks: "a level far ahead under another limit overflows", in: "algorithms.meter.rescale", suites: goRules,
		old: "if ahead > 2*maxExact/l0 {", new: "if ahead > 2*maxExact {",
	},
	{
		name: "meter-rescale-ignored", breaks: "a level keeps its number when the limit changes", in: "algorithms.meter.levelUpTo", suites: goRules,
		old: "case s[2] != m.limit:", new: "case s[2] < 0:",
	},
	{
		name: "meter-share-burst", breaks: "the burst is not divided among the instances", in: "algorithms.newMeter", suites: goRules,
		old: "if sp.ShareOf > 1e6 {", new: "if sp.ShareOf < 0 {",
	},
	{
		name: "leaky-queue", breaks: "the request that leaves immediately takes a position in the queue", in: "algorithms.LeakyBucket.Compile", suites: goRules,
		old: "burst = wait*l/w + 1; burst", new: "burst = wait * l / w; burst",
	},
	{
		name: "leaky-wait", breaks: "the wait of a burst is rounded down (floor for ceil)", in: "algorithms.LeakyBucket.MaxDelay", suites: goRules,
		old: "return cd((b.Burst-1)*w, l)", new: "return (b.Burst - 1) * w / l",
	},
	{
		name: "leaky-long-burst", breaks: "a burst that max_wait has no room for is accepted", in: "algorithms.LeakyBucket.Compile", suites: goRules,
		old: "if burst-1 > wait*l/w {", new: "if burst < 0 {",
	},
	{
		name: "share-round", breaks: "shares are rounded up, so that together they are more than the whole", in: "algorithms.Spec.Share", suites: goRules,
		old: "q*1e6+r*1e6/sp.ShareOf)", new: "q*1e6+cd(r*1e6, sp.ShareOf))",
	},
	{
		name: "share-none", breaks: "a share can be less than one request needs (a dropped max)", in: "algorithms.Spec.Share", suites: goRules,
		old: "return max(sp.Cost, q*1e6+r*1e6/sp.ShareOf)", new: "return q*1e6 + r*1e6/sp.ShareOf",
	},
	{
		name: "windowed-edge", breaks: "the last of a limit is denied (>= for >)", in: "algorithms.windowed.judge", suites: goRules,
		old: "case used > c.limit-cost:", new: "case used >= c.limit-cost:",
	},
	{
		name: "windowed-cost", breaks: "the verdict ignores the cost", in: "algorithms.windowed.judge", suites: goRules,
		old: "case used > c.limit-cost:", new: "case used > c.limit-1:",
	},
	{
		name: "windowed-never", breaks: "a cost of the whole limit is never admitted (>= for >)", in: "algorithms.windowed.judge", suites: goRules,
		old: "case cost > c.limit:", new: "case cost >= c.limit:",
	},
	{
		name: "windowed-held-ignored", breaks: "what unanswered requests hold does not count", in: "algorithms.windowed.judge", suites: goRules,
		old: "case held > c.limit-cost-used:", new: "case held < 0:",
	},
	{
		name: "windowed-held-edge", breaks: "the last request of a limit beside reservations is denied (>= for >)", in: "algorithms.windowed.judge", suites: goRules,
		old: "case held > c.limit-cost-used:", new: "case held >= c.limit-cost-used:",
	},
	{
		name: "windowed-debt-unbounded", breaks: "a debt has no bound (a dropped min)", in: "algorithms.windowed.overdraft", suites: goRules,
		old: "min(cost, max(0, 2*c.limit-used))", new: "cost",
	},
	{
		name: "windowed-debt-forgiven", breaks: "a charge lowers the debt from a larger limit (a dropped max)", in: "algorithms.windowed.overdraft", suites: goRules,
		old: "min(cost, max(0, 2*c.limit-used))", new: "min(cost, 2*c.limit-used)",
	},
	{
		name: "fixed-end", breaks: "a window lasts a microsecond longer (> for >=)", in: "algorithms.fixedWindow.used", suites: goRules,
		old: "now >= end {", new: "now > end {",
	},
	{
		name: "fixed-align", breaks: "align is ignored", in: "algorithms.fixedWindow.start", suites: goRules,
		old: "case f.align:", new: "case false:",
	},
	{
		name: "fixed-step-back", breaks: "a window that begins ahead of the clock is not repaired", in: "algorithms.fixedWindow.Repair", suites: goRules,
		old: "if s[1] == 0 || s[0] <= f.dates.on(now) {", new: "if s[1] == 0 || f.dates == nil && s[0] <= now+f.window || s[0] <= f.dates.on(now) {",
	},
	{
		name: "fixed-repair-always", breaks: "a window that begins now is taken for a step of the clock (< for <=)", in: "algorithms.fixedWindow.Repair", suites: goRules,
		old: "if s[1] == 0 || s[0] <= f.dates.on(now) {", new: "if s[1] == 0 || s[0] < f.dates.on(now) {",
	},
	{
		name: "fixed-charge-cost", breaks: "a charge ignores the cost", in: "algorithms.fixedWindow.Charge", suites: goRules,
		old: "s[1] = used + cost", new: "s[1] = used + 1",
	},
	{
		name: "fixed-remaining", breaks: "in debt less than nothing is left (a dropped max)", in: "algorithms.fixedWindow.Numbers", suites: goRules,
		old: "return max(0, f.limit-used), end - now", new: "return f.limit - used, end - now",
	},
	{
		name: "fixed-reset", breaks: "reset is a microsecond too long", in: "algorithms.fixedWindow.Numbers", suites: goRules,
		old: "return max(0, f.limit-used), end - now", new: "return max(0, f.limit-used), end - now + 1",
	},
	{
		name: "sliding-width", breaks: "the width of a part is rounded down (floor for ceil)", in: "algorithms.SlidingWindow.Compile", suites: goRules,
		old: "width := cd(sp.Window, k)", new: "width := sp.Window / k",
	},
	{
		name: "sliding-oldest", breaks: "the oldest part does not count (>= for >)", in: "algorithms.slidingWindow.live", suites: goRules,
		old: "if age > w.parts {", new: "if age >= w.parts {",
	},
	{
		name: "sliding-retry", breaks: "retry is a part too long (>= for >)", in: "algorithms.slidingWindow.Judge", suites: goRules,
		old: "used+cost > w.limit; x--", new: "used+cost >= w.limit && x >= 0; x--",
	},
	{
		name: "sliding-retry-one", breaks: "retry is a microsecond too short", in: "algorithms.slidingWindow.Judge", suites: goRules,
		old: "return (now/w.width+m)*w.width - now", new: "return (now/w.width+m)*w.width - now - 1",
	},
	{
		name: "sliding-step-back", breaks: "parts ahead of the clock are not repaired", in: "algorithms.slidingWindow.Repair", suites: goRules,
		old: "w.width; s[0] > j {", new: "w.width; s[0] > j+w.parts {",
	},
	{
		name: "sliding-clear", breaks: "parts in which nothing passed keep old counts", in: "algorithms.slidingWindow.roll", suites: goRules,
		old: "clear(c[:int64(len(c))-kept])", new: "clear(c[:0])",
	},
	{
		name: "sliding-charge-cost", breaks: "a charge ignores the cost", in: "algorithms.slidingWindow.Charge", suites: goRules,
		old: "s[1+s[0]-j] += cost", new: "s[1+s[0]-j]++",
	},
	{
		name: "sliding-reset", breaks: "reset is a part too short", in: "algorithms.slidingWindow.Numbers", suites: goRules,
		old: "w.parts+1)*w.width - now", new: "w.parts)*w.width - now",
	},
	{
		name: "sliding-remaining", breaks: "in debt less than nothing is left (a dropped max)", in: "algorithms.slidingWindow.Numbers", suites: goRules,
		old: "return max(0, w.limit-used), reset", new: "return w.limit - used, reset",
	},
	{
		name: "log-edge", breaks: "a stamp counts a microsecond too long (>= for >)", in: "algorithms.slidingLog.live", suites: goRules,
		old: "> now-l.window\n\t}))", new: ">= now-l.window\n\t}))",
	},
	{
		name: "log-place", breaks: "the wrong stamp decides (off by one)", in: "algorithms.slidingLog.leaves", suites: goRules,
		old: "i := s[0] - l.limit + n - 1", new: "i := s[0] - l.limit + n",
	},
	{
		name: "log-retry", breaks: "a free slot is counted as used (>= for >)", in: "algorithms.slidingLog.Judge", suites: goRules,
		old: "case l.leaves(s, cost) > now:", new: "case l.leaves(s, cost) >= now:",
	},
	{
		name: "log-held-ignored", breaks: "what unanswered requests hold does not count", in: "algorithms.slidingLog.Judge", suites: goRules,
		old: "case held > 0 && (held", new: "case held < 0 && (held",
	},
	{
		name: "log-held-limit", breaks: "reservations beyond the limit are looked up in the ring", in: "algorithms.slidingLog.Judge", suites: goRules,
		old: "(held > l.limit-cost || l.leaves(s, cost+held) > now)", new: "l.leaves(s, cost+held) > now",
	},
	{
		name: "log-overwrite", breaks: "stamps that are still in the window are overwritten", in: "algorithms.slidingLog.Need", suites: goRules,
		old: "cost <= size && (last < 0 || stamp(s, last) <= now-l.window) {", new: "cost <= size && (last < 0 || last >= 0) {",
	},
	{
		name: "log-need-one", breaks: "the ring grows a stamp too late", in: "algorithms.slidingLog.Need", suites: goRules,
		old: "last := s[0] + cost - 1 - size", new: "last := s[0] + cost - 2 - size",
	},
	{
		name: "log-need-cost", breaks: "the ring grows without room for the cost", in: "algorithms.slidingLog.Need", suites: goRules,
		old: "min(live+cost, 2*l.limit)", new: "min(live, 2*l.limit)",
	},
	{
		name: "log-owed", breaks: "debts overwrite what a log was charged", in: "algorithms.slidingLog.Overdraw", suites: goRules,
		old: "l.overdraft(l.live(s, oldest(s, s[0]), now), min(cost, l.limit))", new: "min(cost, l.limit)",
	},
	{
		name: "log-debts", breaks: "charges after responses grow a log without a bound", in: "algorithms.slidingLog.Need", suites: goRules,
		old: "max(live, min(live+cost, 2*l.limit))", new: "live + cost",
	},
	{
		name: "log-move", breaks: "a ring that grows loses its oldest stamp", in: "algorithms.slidingLog.Move", suites: goRules,
		old: "for i := oldest(src, src[0]); i < src[0]; i++ {", new: "for i := oldest(src, src[0]) + 1; i < src[0]; i++ {",
	},
	{
		name: "log-step-back", breaks: "stamps ahead of the clock are not repaired", in: "algorithms.slidingLog.Repair", suites: goRules,
		old: "\tif excess <= l.lease {\n\t\treturn false", new: "\tif excess <= l.lease+l.window {\n\t\treturn false",
	},
	{
		name: "log-repair", breaks: "a repair moves only the newest stamp", in: "algorithms.slidingLog.Repair", suites: goRules,
		old: "for i := oldest(s, s[0]); i < s[0]; i++ {", new: "for i := s[0] - 1; i < s[0]; i++ {",
	},
	{
		name: "log-charge-cost", breaks: "a charge ignores the cost", in: "algorithms.slidingLog.Charge", suites: goRules,
		old: "for range cost {", new: "for range min(cost, 1) {",
	},
	{
		name: "log-debt-unbounded", breaks: "a debt has no bound (a dropped min)", in: "algorithms.slidingLog.Overdraw", suites: goRules,
		old: "now), min(cost, l.limit))", new: "now), cost)",
	},
	{
		name: "log-reset", breaks: "reset is a microsecond too short", in: "algorithms.slidingLog.Numbers", suites: goRules,
		old: "stamp(s, s[0]-1)+l.window-now)", new: "stamp(s, s[0]-1)+l.window-now-1)",
	},
	{
		name: "log-view-edge", breaks: "Go denies the last free slot that Redis reports (<= for <)", in: "algorithms.logView.Judge", suites: []suite{redisStore, memoryStore, acrossStores},
		old: "case left < cost:", new: "case left <= cost:",
	},
	{
		name: "log-view-oldest", breaks: "Go does not know when the first stamp leaves", in: "algorithms.logView.Charge", suites: []suite{redisStore, memoryStore, acrossStores},
		old: "s[4] = s[2] + v.window", new: "s[4] = s[1] + v.window",
	},
	{
		name: "log-view-held", breaks: "Go ignores reservations beside what Redis reports", in: "algorithms.logView.Judge", suites: []suite{redisStore, memoryStore, acrossStores},
		old: "case left < cost+held:", new: "case left < cost:",
	},
}
