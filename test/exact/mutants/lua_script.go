//go:build unix

package main

const (
	mainLua    = "scripts/lua/main.lua"
	generalLua = "scripts/lua/general.lua"
	permitsLua = "scripts/lua/permits.lua"
	readLua    = "scripts/lua/read.lua"
	writeLua   = "scripts/lua/write.lua"

	oneLua      = "scripts/lua/one.lua"
	writeAnyLua = "scripts/lua/write_any.lua"
)

// scriptMutants break the script around the judges.
var scriptMutants = []mutant{
	{
		name: "lua-commit", breaks: "a zone is charged before all have admitted", in: generalLua, suites: redis,
		old: "local charges = all and z.admits and not z.withheld", new: "local charges = z.admits and not z.withheld",
	},
	{
		name: "lua-all", breaks: "only the last zone decides", in: generalLua, suites: redis,
		old: "all = all and z.admits", new: "all = z.admits",
	},
	{
		name: "lua-rules", breaks: "only the last rule of a zone decides", in: generalLua, suites: redis,
		old: "if not ok then z.ok = false end", new: "z.ok = ok",
	},
	{
		name: "lua-shadow", breaks: "a shadow denies the live zones", in: generalLua, suites: redis,
		old: "if not z.shadow then\n      all", new: "if true then\n      all",
	},
	{
		name: "lua-shadow-turn", breaks: "a shadow is charged at the delay of the live zones", in: generalLua, suites: redis,
		old: "not z.shadow and turn or z.delay)", new: "turn)",
	},
	{
		name: "lua-turn", breaks: "a queue is charged at its own delay instead of the common one", in: generalLua, suites: redis,
		old: "if z.least and z.least ~= turn then", new: "if z.least and z.least > turn then",
	},
	{
		name: "lua-turn-max", breaks: "the delay of a zone is that of its last rule, not the longest (a dropped max)", in: generalLua, suites: redis,
		old: "z.delay = max(delay, z.delay or 0)", new: "z.delay = delay",
	},
	{
		name: "lua-turn-zones", breaks: "the common delay is the last zone's (a dropped comparison)", in: generalLua, suites: redis,
		old: "if z.delay and z.delay > (turn or -1) then", new: "if z.delay then",
	},
	{
		name: "lua-held", breaks: "what unanswered requests hold does not count", in: generalLua, suites: redis,
		old: "zone_decide(z, v, z.n, z.held)", new: "zone_decide(z, v, z.n, 0)",
	},
	{
		name: "lua-in-flight", breaks: "one request too many is in flight (> for >=)", in: generalLua, suites: redis,
		old: "z.holds.count >= z.limit", new: "z.holds.count > z.limit",
	},
	{
		name: "lua-hold-charged", breaks: "a cost is charged and held", in: generalLua, suites: redis,
		old: "if z.hold < 2 and z.rules > 0 then", new: "if z.hold < 3 and z.rules > 0 then",
	},
	{
		name: "lua-repair-denied", breaks: "a denial does not repair what a step of the clock left", in: generalLua, suites: redis,
		old: "if repaired then zone_repair(z, v) end", new: "if repaired and all then zone_repair(z, v) end",
	},
	{
		name: "lua-repair-held", breaks: "a zone that only holds does not repair what a step of the clock left", in: generalLua, suites: redis,
		old: "elseif z.stepped then\n    zone_repair(z, v)", new: "elseif z.stepped and z.hold == 0 then\n    zone_repair(z, v)",
	},
	{
		name: "lua-repair-unreported", breaks: "a step of the clock is not reported", in: generalLua, suites: redis,
		old: "    z.stepped = repaired\n", new: "    z.stepped = false\n",
	},
	{
		name: "lua-ttl-short", breaks: "a key expires a second too early", in: writeLua, suites: redis,
		old: "1000 + 998 end", new: "1000 - 2 end",
	},
	{
		name: "lua-ttl-long", breaks: "a key stays a minute longer", in: writeLua, suites: redis,
		old: "1000 + 998 end", new: "1000 + 60998 end",
	},
	{
		name: "lua-ttl-keep-short", breaks: "a time to live is kept though more is needed", in: writeLua, suites: redis,
		old: "left >= 0 and left", new: "exp > 0 and left",
	},
	{
		name: "lua-ttl-keep-long", breaks: "a time to live is kept though less is needed", in: writeLua, suites: redis,
		old: " and left < 999000 then", new: " then",
	},
	{
		name: "lua-ttl-lost", breaks: "a new key lives for ever", in: writeLua, suites: redis,
		old: "call('SET', key, new, 'PX', ttl)", new: "call('SET', key, new)",
	},
	{
		name: "lua-ttl-put-off", breaks: "a time to live is not put off", in: writeLua, suites: redis,
		old: "call('PEXPIRE', key, ttl)", new: "",
	},
	{
		name: "lua-ttl-last-rule", breaks: "the TTL of a key is that of its last rule, not the longest (a dropped max)", in: generalLua, suites: redis,
		old: "if reset and reset > z.reset then z.reset = reset end", new: "if reset then z.reset = reset end",
	},
	{
		name: "lua-wrong-value", breaks: "a value that is none of ours is read as one", in: readLua, suites: redis,
		old: "elseif #s ~= size and (not log or #s < size) then", new: "elseif #s < size then",
	},
	{
		name: "lua-failed-all", breaks: "a key of another type fails the other checks, too", in: generalLua, suites: redis,
		old: "if not find(cause, 'WRONGTYPE', 1, true) and cause ~= OUTSIDE and cause ~= OVERTAKEN then", new: "if cause then",
	},
	{
		name: "lua-failed-hidden", breaks: "an error of all checks is reported to one", in: generalLua, suites: redis,
		old: "if not find(cause, 'WRONGTYPE', 1, true) and cause ~= OUTSIDE and cause ~= OVERTAKEN then", new: "if not cause then",
	},
	{
		name: "lua-plain-rules", breaks: "only the last rule of a plain zone decides", in: mainLua, suites: redis,
		old: "            denied = true\n          elseif", new: "            denied = r == rules\n          elseif",
	},
	{
		name: "lua-plain-repaired", breaks: "a plain zone's state is not repaired by a denial", in: mainLua, suites: redis,
		old: "if rule_stepped or rule_delay then", new: "if rule_delay then",
	},
	{
		name: "lua-plain-turn", breaks: "a plain zone's queues are charged at their own delay", in: mainLua, suites: redis,
		old: "if rule_stepped or rule_delay then", new: "if rule_stepped then",
	},
	{
		name: "lua-plain-ttl-last", breaks: "the TTL of a plain zone is that of its last rule, not the longest", in: mainLua, suites: redis,
		old: "elseif not reset or rule_reset > reset then", new: "else",
	},
	{
		name: "lua-plain-kept", breaks: "what a rule did not change of its state is lost", in: mainLua, suites: redis,
		old: "if #rule_state < rule_j - from then", new: "if #rule_state < 0 then",
	},
	{
		name: "lua-lone-repaired", breaks: "the state of a single rule is not repaired by a denial", in: mainLua, suites: redis,
		old: "if not rule_stepped then", new: "if true then",
	},
	{
		name: "lua-lone-value", breaks: "another program's value is judged", in: mainLua, suites: redis,
		old: "if s ~= false then", new: "if true then",
	},
	{
		name: "lua-one-repaired", breaks: "the state of a single rule in a batch is not repaired by a denial", in: oneLua, suites: redis,
		old: "if stepped then break end", new: "",
	},
	{
		name: "lua-one-value", breaks: "another program's value is judged in a batch", in: oneLua, suites: redis,
		old: "if #s ~= size then break end", new: "if type(s) == 'table' then break end",
	},
	{
		name: "lua-one-lost", breaks: "a lost key of a batch starts anew", in: oneLua, suites: redis,
		old: "elseif again == '+' or again == '' and marks > 1 then", new: "elseif again == '+' and false then",
	},
	{
		name: "lua-one-lost-repeated", breaks: "only the first of several lost keys of a batch is noticed", in: oneLua, suites: redis,
		old: "elseif again == '+' or again == '' and marks > 1 then", new: "elseif again == '' and marks > 1 then",
	},
	{
		name: "lua-left-known", breaks: "a new key of a batch that the general path decides is taken for a lost one", in: mainLua, suites: redis,
		old: "string.char(marks % 2 + (again == '+' and 2 or 0))", new: "string.char(marks)",
	},
	{
		name: "lua-same-check", breaks: "a check that equals the previous one is not decided", in: mainLua, suites: redis,
		old: "until again ~= '' and again ~= '+' and again ~= '-'", new: "until true",
	},
	{
		name: "lua-plain-keys", breaks: "the checks of a call use each other's keys", in: mainLua, suites: redis,
		old: "a, place = a + 1, place + keys", new: "a, place = a + 1, place + 1",
	},
	{
		name: "lua-answer-order", breaks: "the reply to a check of another path is in the wrong position", in: mainLua, suites: redis,
		old: "m = m + 1\n      out[m], rest = '', rest or {}", new: "out[m + 1], rest = '', rest or {}",
	},
	{
		name: "lua-write-part", breaks: "a charge is written a word too early", in: writeAnyLua, suites: redis,
		old: "local from, head = '8'", new: "local from, head = '0'",
	},
	{
		name: "lua-write-log-part", breaks: "a log's states are written a word too early", in: writeAnyLua, suites: redis,
		old: "log.tail == log.old and '16'", new: "log.tail == log.old and '8'",
	},
	{
		name: "lua-write-tail", breaks: "where a log's value ends is not written when it grows", in: writeAnyLua, suites: redis,
		old: "log.tail == log.old and '16'", new: "'16'",
	},
	{
		name: "lua-log-writes", breaks: "what a log writes is lost", in: writeAnyLua, suites: redis,
		old: "for x = 1, #log.writes, 2 do", new: "for x = 1, #log.writes - 2, 2 do",
	},
	{
		name: "lua-beat-dead", breaks: "instances that died are counted", in: generalLua, suites: redis,
		old: "seen > t - SEEN and seen <= t", new: "seen <= t",
	},
	{
		name: "lua-beat-future", breaks: "instances are counted that a clock since set back has seen", in: generalLua, suites: redis,
		old: "seen > t - SEEN and seen <= t", new: "seen > t - SEEN",
	},
	{
		name: "lua-beat-twice", breaks: "an instance is counted with each beat", in: generalLua, suites: redis,
		old: "    elseif seen > t - SEEN and", new: "    end\n    if other ~= BORN and seen > t - SEEN and",
	},
}
