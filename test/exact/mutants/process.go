//go:build unix

package main

// processMutants break what a store does to its neighbours: the observer, the other stores
// of the process, other fleets, and rules beside those of a broken algorithm.
var processMutants = []mutant{
	{
		name: "breaker-unordered", breaks: "the observer is notified without the nodes' lock", in: "redis.nodes.report", suites: redis,
		old: "\tns.notify(n, up, cause)", new: "\tgo ns.notify(n, up, cause)",
	},
	{
		name: "breaker-late-ramp", breaks: "the breaker closes before the ramp begins", in: "redis.breaker.change", suites: redis,
		old: "\t\tb.closing()\n\t}\n\tb.open.Store(open)", new: "\t\tdefer b.closing()\n\t}\n\tb.open.Store(open)",
	},
	{
		name: "breaker-impatient", breaks: "a short stall opens the breaker", in: "redis.newBreaker", suites: redis,
		old: "max(timeout, minPatience)", new: "max(timeout, 0*minPatience)",
	},
	{
		name: "breaker-late-timers", breaks: "timeouts count that a process noticed late which stood still", in: "redis.doubt.standStill", suites: redis,
		old: "d.stood += at -", new: "_ = at -",
	},
	{
		name: "breaker-stood-twice", breaks: "a pause of this process is taken off for each call that was under way", in: "redis.doubt.standStill", suites: redis,
		old: "max(at-late, d.until)", new: "(at - late)",
	},
	{
		name: "breaker-answered", breaks: "a reply does not end the silence of a node", in: "redis.silence.end", suites: redis,
		old: "\tif s.asked.Load() != 0 {\n\t\ts.asked.Store(0)\n\t}", new: "",
	},
	{
		name: "connections-late", breaks: "a reply that came while the process stood still is not read", in: "redis.trackedConn.read", suites: redis,
		old: "time.Since(c.reads) < lateRead", new: "c.heard || !c.heard",
	},
	{
		name: "connections-closed", breaks: "a connection that was closed is used behind TLS", in: "redis.trackedConn.SyscallConn", suites: redis,
		old: "ok && c.heard {", new: "ok && !ok {",
	},
	{
		name: "connections-subscription", breaks: "a subscription waits for a connection of the pool", in: "redis.newClient", suites: redis,
		old: "size+subscriptions", new: "size+0*subscriptions",
	},
	{
		name: "process-stores", breaks: "two stores of a process are two instances", in: "redis.New", suites: redis,
		old: "process: cmp.Or(o.Process, c.instance)", new: "process: cmp.Or(c.instance, o.Process)",
	},
	{
		name: "process-permits", breaks: "stores of a process have the same permits", in: "redis.newConn", suites: redis,
		old: "instance: rand.Uint64()", new: "instance: rand.Uint64N(1) + 1",
	},
	{
		name: "process-fleets", breaks: "instances with other secrets are counted", in: "redis.instances.count", suites: redis,
		old: "if i.fleet != \"\" {", new: "if len(i.fleet) > 100 {",
	},
	{
		name: "fleet-bounded", breaks: "figures of any number of instances are kept", in: "redis.figures.write", suites: []suite{redisStore},
		old: "all.Val() > mostFigures", new: "all.Val() > 2*mostFigures",
	},
	{
		name: "fleet-parts", breaks: "only the first figures are read", in: "redis.figures.read", suites: []suite{redisStore},
		old: "cursor == 0 {", new: "cursor != 0 || true {",
	},
	{
		name: "zones-keys", breaks: "the number of keys of a check has eight bits", in: "redis.call.decide", suites: redis,
		old: "appendCount(append(q.b, op), keys)", new: "appendCount(append(q.b, op), keys&255)",
	},
	{
		name: "zones-count", breaks: "the number of zones of a check has eight bits", in: "redis.call.decide", suites: redis,
		old: "keys), len(check.Zones))", new: "keys), len(check.Zones)&255)",
	},
	{
		name: "failed-wait", breaks: "the wait for Redis counts as the decision of this process", in: "redis.decider.inRedis", suites: redis,
		old: "check.Waited = d.o.Clock() - sent", new: "check.Waited = d.o.Clock() - d.o.Clock()",
	},
	{
		name: "failed-kept", breaks: "an earlier wait for Redis is counted again", in: "redis.decider.decide", suites: redis,
		old: "\tcheck.Waited = 0\n", new: "",
	},
	{
		name: "third-party-batch", breaks: "calls with different scripts are batched", in: "redis.batcher.dequeue", suites: redis,
		old: "q.codes != batch[0].codes || ", new: "",
	},
	{
		name: "third-party-blame", breaks: "the wrong algorithm is named", in: "scripts.Script.Names", suites: redis,
		old: "if line >= first && line < end {", new: "if line >= end {",
	},
	{
		name: "third-party-union", breaks: "a check of several zones has the script of the last", in: "redis.call.needs", suites: redis,
		old: "[]byte(q.codes + p.codes)", new: "[]byte(p.codes)",
	},
	{
		name: "third-party-release", breaks: "a release runs the script without its algorithm", in: "redis.Store.chargeOnce", suites: redis,
		old: "\tq.needs(&of.packed)\n", new: "",
	},
	{
		name: "third-party-full", breaks: "a full Redis is blamed on an algorithm", in: "redis.script.blame", suites: redis,
		old: " || findAnswer(answered.Error()) != nil {\n\t\treturn err", new: " {\n\t\treturn err",
	},
}
