//go:build unix

package main

const (
	blockLua = "scripts/lua/block.lua"
)

// blockMutants break the blocks of keys.
var blockMutants = []mutant{
	{
		name: "block-short", breaks: "a block ends before its rule admits", in: "stores.ZoneCheck.StartedStep", suites: goRules,
		old: "if d = max(d, v.Retry); d > b.Span {", new: "if d > b.Span {",
	},
	{
		name: "block-first", breaks: "the first rule that blocks counts, not the one whose block ends last", in: "stores.ZoneCheck.StartedStep", suites: goRules,
		old: "if d = max(d, v.Retry); d > b.Span {", new: "if d = max(d, v.Retry); b.Span == 0 {",
	},
	{
		name: "block-last", breaks: "of two equal blocks the second counts", in: "stores.ZoneCheck.StartedStep", suites: goRules,
		old: "if d = max(d, v.Retry); d > b.Span {", new: "if d = max(d, v.Retry); d >= b.Span {",
	},
	{
		name: "block-more", breaks: "a block puts off what is left without it to when there would be more", in: "stores.ZoneCheck.StartBlock", suites: []suite{acrossStores},
		old: "if res.Remaining > 0 { //", new: "if res.Remaining < 0 { //",
	},
	{
		name: "block-held", breaks: "costs that are held start a block", in: "stores.ZoneCheck.StartedStep", suites: redis,
		old: "v.Admit || v.Held || v.Retry", new: "v.Admit || v.Retry",
	},
	{
		name: "block-never", breaks: "a cost above the capacity starts a block", in: "stores.ZoneCheck.StartedStep", suites: redis,
		old: " || v.Retry == algorithms.Never {\n\t\t\tcontinue", new: " {\n\t\t\tcontinue",
	},
	{
		name: "block-lengthened", breaks: "a request meanwhile starts another block", in: "memory.location.apply", suites: goRules,
		old: " && z.StartsBlock && z.Block.Until == 0 {", new: " && z.StartsBlock {",
	},
	{
		name: "block-peek", breaks: "a peek starts a block", in: "memory.Store.Decide", suites: goRules,
		old: "&& !check.IsShadow(i) && !check.Peek", new: "&& !check.IsShadow(i)",
	},
	{
		name: "block-shadow", breaks: "a shadow starts a block", in: "memory.Store.Decide", suites: redis,
		old: "&& !check.IsShadow(i) && !check.Peek", new: "&& !check.Peek",
	},
	{
		name: "block-shared", breaks: "a shared counter blocks a key", in: "memory.location.block", suites: []suite{memoryStore},
		old: "p.slot == nil || !BlocksOf", new: "!BlocksOf",
	},
	{
		name: "block-alone", breaks: "an instance without Redis starts a block", in: "outage.Fallback.Decide", suites: redis,
		old: "z.StartsBlock = false // of", new: "z.StartsBlock = z.Counter.Blocks != nil // of",
	},
	{
		name: "block-unbounded", breaks: "the number of blocks is not bounded", in: "memory.Blocks.Set", suites: []suite{memoryStore},
		old: "if b.count.Add(1) > b.max.Load() {", new: "if b.count.Add(1) < 0 {",
	},
	{
		name: "block-ahead", breaks: "a block lasts longer after the clock was set back", in: "memory.Blocks.find", suites: []suite{memoryStore},
		old: "if x.Until > now+x.Span {", new: "if x.Until > now+2*x.Span {",
	},
	{
		name: "block-clock", breaks: "a block ends when the clock of Redis is set", in: "memory.Blocks.Follow", suites: redis,
		old: "d := now.stepped(x.Offset)", new: "d := now.stepped(x.Offset) * 0",
	},
	{
		name: "block-recalled", breaks: "a denial without a call puts off a block", in: "outage.recall", suites: redis,
		old: "if !inShadow {\n\t\t\treturn 0, false", new: "if false {\n\t\t\treturn 0, false",
	},
	{
		name: "block-recalled-old", breaks: "a block that was told long ago denies without a call", in: "outage.recall", suites: redis,
		old: "return at, b.Asked >= since", new: "return at, true",
	},
	{
		name: "block-forgotten", breaks: "an instance does not remember blocks", in: "redis.decider.read", suites: redis,
		old: "if z.Block.Until > 0 {\n\t\t\td.fallback", new: "if z.Block.Until < 0 {\n\t\t\td.fallback",
	},
	{
		name: "block-swept", breaks: "blocks are not put back without a check", in: "outage.Handovers.sources", suites: redis,
		old: "b != nil && !seen[b]", new: "b != nil && seen[b]",
	},
	{
		name: "block-undone", breaks: "what an instance knows undoes a reset", in: blockLua, suites: redis,
		old: "if is_reset(reset, since, move) then return", new: "if false then return",
	},
	{
		name: "block-reset-later", breaks: "an instance forgets a block that started after a reset", in: blockLua, suites: redis,
		old: "return ends > had + tolerance and '\\1' or '\\0' end", new: "return '\\1' end",
	},
	{
		name: "block-reset", breaks: "a reset leaves the block", in: "redis.resetsOf", suites: redis,
		old: "return append(all, block)", new: "return all",
	},
	{
		name: "block-ended", breaks: "a block that ended with the last rule that blocks is in force again", in: blockLua, suites: redis,
		old: " or ends - span < since then", new: " then",
	},
	{
		name: "block-earlier", breaks: "a block that is put back replaces a later one", in: blockLua, suites: redis,
		old: "if ends > had and (ends", new: "if (ends",
	},
	{
		name: "block-unmoved", breaks: "a block is put back on another clock as it was", in: blockLua, suites: redis,
		old: "ends = min(ends + move, t + span)", new: "ends = min(ends, t + span)",
	},
	{
		name: "lua-block-held", breaks: "costs that are held start a block in Redis", in: blockLua, suites: redis,
		old: "if least > 0 and fits and not admits(0) then", new: "if least > 0 and fits then",
	},
	{
		name: "lua-block-never", breaks: "a cost above the capacity starts a block in Redis", in: blockLua, suites: redis,
		old: "if least > 0 and fits and not", new: "if least > 0 and not",
	},
	{
		name: "lua-block-short", breaks: "a block ends before its rule admits in Redis", in: blockLua, suites: redis,
		old: "while span < 2 ^ 52 and not admits(span) do", new: "while span < 0 do",
	},
	{
		name: "lua-block-coarse", breaks: "a block ends up to twice as late as its rule admits", in: blockLua, suites: redis,
		old: "while denied >= least and span - denied > 1 do", new: "while false do",
	},
	{
		name: "lua-block-queue", breaks: "a block ends when a queue is not too long, though full", in: blockLua, suites: redis,
		old: "return ok and (not delays or (decide(v, from, s, at, t + d, n, 0, nil, log)))", new: "return ok",
	},
	{
		name: "lua-block-ahead", breaks: "a block lasts longer after Redis' clock was set back", in: blockLua, suites: redis,
		old: "return min(ends, t + span), span", new: "return ends, span",
	},
	{
		name: "lua-block-last", breaks: "the last rule that blocks counts in Redis", in: blockLua, suites: redis,
		old: "if span > z.span then z.ends", new: "if true then z.ends",
	},
	{
		name: "lua-block-peek", breaks: "a peek or a shadow starts a block in Redis", in: generalLua, suites: redis,
		old: "if z.block and z.denied and not (z.shadow or peek or lost) then", new: "if z.block and z.denied and not lost then",
	},
	{
		name: "lua-block-plain", breaks: "the fast path does not look for a block", in: mainLua, suites: redis,
		old: "if op == CHECK or op == GUARDED and not try('GET', KEYS[place + 1]) then", new: "if op == CHECK or op == GUARDED then",
	},
	{
		name: "lua-block-unstarted", breaks: "a denial on the fast path starts no block", in: mainLua, suites: redis,
		old: "if not rule_ok then flags = nil end", new: "",
	},
	{
		name: "block-grows-late", breaks: "a block grows after more than a day", in: "memory.KnownBlock.over", suites: []suite{memoryStore},
		old: "now-x.Until > stores.GrowsWithin", new: "now-x.Until > 2*stores.GrowsWithin",
	},
	{
		name: "block-grows-on", breaks: "the step of a block is not bounded", in: "stores.ZoneCheck.StartedBlock", suites: redis,
		old: "step = min(z.Block.Step+1, z.Counter.LastStep())", new: "step = z.Block.Step + 1",
	},
	{
		name: "block-grows-first", breaks: "the second block lasts as long as the first", in: "stores.Counter.blockAt", suites: goRules,
		old: "if step > 1 && c.Grows != nil", new: "if step > 2 && c.Grows != nil",
	},
	{
		name: "block-grows-lost", breaks: "how long the next block is is not put back", in: "outage.block", suites: redis,
		old: "ok && (last || x.Until", new: "ok && (x.Until",
	},
	{
		name: "lua-block-grows-late", breaks: "a block grows in Redis at a day and no more", in: blockLua, suites: redis,
		old: "t - ends <= DAY end", new: "t - ends < DAY end",
	},
	{
		name: "lua-block-grows-ttl", breaks: "Redis forgets how long the next block is", in: blockLua, suites: redis,
		old: "if rule >= STEP then ttl", new: "if false then ttl",
	},
	{
		name: "lua-block-ttl", breaks: "a block expires early", in: blockLua, suites: redis,
		old: "1000) + 999", new: "2000) + 999",
	},
}
