//go:build unix

package main

// nodeMutants break the independence of the nodes of a Cluster.
var nodeMutants = []mutant{
	{
		name: "deadline-unbounded", breaks: "a call waits for a connection for as long as it takes", in: "redis.deadline.Done", suites: redis,
		old: "if !d.looked && d.Err() == nil {", new: "if d.Err() == nil {",
	},
	{
		name: "sticky-paused", breaks: "a connection that the server has closed meanwhile is used", in: "redis.holder.stale", suites: redis,
		old: "|| now.Sub(p.used) >= stickyFor)", new: "|| now.Sub(p.used) >= 1000*stickyFor)",
	},
	{
		name: "sticky-retired", breaks: "a connection from before a failure is used", in: "redis.holder.stale", suites: redis,
		old: "p.changes != n.tracker.changes.Load() || ", new: "",
	},
	{
		name: "sticky-removed", breaks: "a connection stays in use when another of its node is closed", in: "redis.connTracker.remove", suites: redis,
		old: "\tl.changes.Add(1)\n\tif l.open[c] {", new: "\tif l.open[c] {",
	},
	{
		name: "sticky-error", breaks: "the connection of a call that failed is kept", in: "redis.sticky.put", suites: redis,
		old: "p.used = now; err != nil {", new: "p.used = now; false {",
	},
	{
		name: "sticky-ended", breaks: "a call is sent though its context has ended", in: "redis.sticky.take", suites: redis,
		old: "o.beat || ctx.Err() != nil {", new: "o.beat {",
	},
	{
		name: "sticky-lost", breaks: "a connection that is not kept is not given back to the pool", in: "redis.giveBack", suites: redis,
		old: "\t\t_ = (*c).Close()\n", new: "",
	},
	{
		name: "sticky-outage", breaks: "connections from before an outage stay lent while it lasts", in: "redis.sticky.put", suites: redis,
		old: "if !o.beat {", new: "if s != nil {",
	},
	{
		name: "sticky-small", breaks: "a small pool keeps connections from heartbeats", in: "redis.newSticky", suites: redis,
		old: "!ok || size < leastForSticky", new: "!ok",
	},
	{
		name: "node-shared", breaks: "all masters of a Cluster share one breaker", in: "redis.nodes.of", suites: redis,
		old: "if n := (*ns.byAddress.Load())[address]; n != nil {", new: "for _, n := range *ns.byAddress.Load() {",
	},
	{
		name: "node-epochs", breaks: "denials by one node hold at another", in: "redis.server.epoch", suites: redis,
		old: "return n.serial<<48 + n.failures.Load()", new: "return n.failures.Load()",
	},
	{
		name: "node-failures", breaks: "denials are kept after a failure of their node", in: "redis.server.epoch", suites: redis,
		old: "+ n.failures.Load() +", new: "+",
	},
	{
		name: "node-ramp", breaks: "a promoted replica decides all keys of its master at once", in: "redis.nodes.add", suites: redis,
		old: "if !ns.allUp() {", new: "if len(ns.masters) == 0 {",
	},
	{
		name: "node-replaced", breaks: "a master that was replaced counts as away", in: "redis.nodes.removeLocked", suites: redis,
		old: "ns.report(n, true, nil)", new: "_ = n",
	},
	{
		name: "node-replica", breaks: "nodes that are none any more are kept", in: "redis.nodes.keep", suites: redis,
		old: "return !n.serves.Load() && !n.tracker.any()", new: "return n.address == \"\"",
	},
	{
		name: "node-first", breaks: "what stands for a Cluster at the start stays in use", in: "redis.nodes.add", suites: redis,
		old: "ns.removeLocked(ns.first)", new: "_ = ns",
	},
	{
		name: "node-begin", breaks: "a store asks a Cluster that the one before knew to be away", in: "redis.nodes.beginAway", suites: redis,
		old: "ns.o.Cluster && before.anyUp().breaker.open.Load()", new: "ns.first.breaker.open.Load()",
	},
	{
		name: "node-back", breaks: "the keys of a node return at once", in: "redis.nodes.newNode", suites: redis,
		old: "n.comesBack, //", new: "func() {}, //",
	},
	{
		name: "node-late", breaks: "a node that is no master is reported", in: "redis.nodes.changed", suites: redis,
		old: "\tif n.serves.Load() {\n\t\tns.report(", new: "\tif n != nil {\n\t\tns.report(",
	},
	{
		name: "node-since", breaks: "each node that fails starts the outage anew", in: "redis.nodes.report", suites: redis,
		old: "others = others && (m == n || !m.breaker.open.Load())", new: "_ = m",
	},
	{
		name: "node-all", breaks: "the store is up when all but one of its nodes are", in: "redis.nodes.state", suites: redis,
		old: "return len(down) == 0, ns.since, down", new: "return len(down) <= 1, ns.since, down",
	},
	{
		name: "node-wrong", breaks: "unexpected replies open the breaker", in: "redis.conn.failed", suites: redis,
		old: "if f == stores.FailWrong || c.o.Cluster && aboutSlot(err) {", new: "if c.o.Cluster && aboutSlot(err) {",
	},
	{
		name: "node-slot", breaks: "a slot that is moved takes its node down", in: "redis.conn.failed", suites: redis,
		old: "if f == stores.FailWrong || c.o.Cluster && aboutSlot(err) {", new: "if f == stores.FailWrong {",
	},
	{
		name: "node-moving-beat", breaks: "a node is not used again while the slot of its heartbeats is moved", in: "redis.maintainer.watch", suites: redis,
		old: "wait, moving = probeEvery, tag", new: "wait, moving = probeEvery, \"\"",
	},
	{
		name: "node-moving", breaks: "a batch that meets a moving slot is not sent one by one", in: "redis.conn.sendBatch", suites: redis,
		old: "if len(q.batch) > 1 && isMoving(err) {", new: "if len(q.batch) > 128 && isMoving(err) {",
	},
	{
		name: "node-redirect", breaks: "a call goes to a node that is away if another redirects it", in: "redis.nodeHook.enter", suites: redis,
		old: "if !o.beat && o.node.breaker.open.Load() {", new: "if o.beat && o.node.breaker.open.Load() {",
	},
	{
		name: "node-lookup", breaks: "what a call was to charge that finds no node or connection is lost", in: "redis.runner.eval", suites: redis,
		old: "if head.is.Load() != written {", new: "if false {",
	},
	{
		name: "node-written", breaks: "what a call has charged whose reply is lost is charged again", in: "redis.heading.MarshalBinary", suites: redis,
		old: "!h.is.CompareAndSwap(unwritten, written) &&", new: "",
	},
	{
		name: "far-retire", breaks: "one call that is late has all connections replaced", in: "redis.conn.failed", suites: redis,
		old: "if f == stores.FailTimeout && !n.breaker.open.Load() {", new: "if n.tracker.retire(sent); f == stores.FailTimeout && !n.breaker.open.Load() {",
	},
	{
		name: "far-wait", breaks: "a call that is late is given up, and its connection closed", in: "redis.conn.sendsApart", suites: redis,
		old: "time.Now().Add(n.tracker.grace)", new: "q.end",
	},
	{
		name: "far-overlap", breaks: "calls to a Redis that is far wait for each other", in: "redis.distance.turn", suites: redis,
		old: "callEvery), mostInFlight))", new: "callEvery), callsInFlight))",
	},
	{
		name: "far-greeting", breaks: "requests greet over new connections", in: "redis.opener.open", suites: redis,
		old: "login, err = o.greet(ctx, k, false)", new: "err = ctx.Err()",
	},
	{
		name: "age-kept", breaks: "connections have no greatest age", in: "redis.connTracker.due", suites: redis,
		old: "now.Sub(c.born) >= c.life", new: "false",
	},
	{
		name: "age-alone", breaks: "connections do not follow one that leads to another server", in: "redis.connTracker.due", suites: redis,
		old: "c.born.Before(l.moved) && c.remote != l.remote", new: "false",
	},
	{
		name: "login-newest", breaks: "a password that the server does not know yet is the only one that is tried", in: "redis.ConnOptions.logIn", suites: redis,
		old: "before != nil && *before != login", new: "false",
	},
	{
		name: "login-kept", breaks: "connections stay whose login the server does not accept any more", in: "redis.connTracker.due", suites: redis,
		old: "|| c.login != login", new: "",
	},
	{
		name: "endpoint-unknown", breaks: "a host that a Cluster does not tell is this one", in: "redis.endpointHook.known", suites: redis,
		old: "\t\treturn h.host\n", new: "\t\treturn host\n",
	},
	{
		name: "far-opening", breaks: "requests wait for connections that are opened", in: "redis.node.batcherOf", suites: redis,
		old: "min(connections/2, int(n.tracker.ready.Load())-1)", new: "connections/2",
	},
	{
		name: "far-ended", breaks: "what a store that has ended loses is counted nowhere", in: "redis.Store.Destruct", suites: redis,
		old: "observers.Ended{Observer: s.conn.observer.get()}", new: "nil",
	},
	{
		name: "metrics-gone", breaks: "what a zone loses that is gone is not shown", in: "metrics.collector.collectUncharged", suites: []suite{reloads},
		old: "|| series.GetCounter().GetValue() > 0", new: "",
	},
	{
		name: "ended-replaced", breaks: "what a store is owed is given up when it is not configured any more", in: "redis.Store.Observe", suites: []suite{redisStore},
		old: "s.fallback.Hands.End(ended)", new: "s.fallback.Hands.End(false && ended)",
	},
	{
		name: "ended-owed", breaks: "what is owed in tables of a store that ends is given up at once", in: "outage.Handovers.End", suites: redis,
		old: "d.ends = ends", new: "d.ends = false",
	},
	{
		name: "far-idle", breaks: "a Redis that was far is told as away until something is checked", in: "redis.alone.turn", suites: redis,
		old: "a.is = a.is && way >= timeout", new: "_ = timeout",
	},
	{
		name: "failover-new", breaks: "calls to the old master have connections to the new one replaced", in: "redis.connTracker.retire", suites: redis,
		old: "if !sent.Before(l.since) {", new: "if true {",
	},
	{
		name: "failover-old", breaks: "connections to the old master are used after another is named", in: "redis.connTracker.add", suites: redis,
		old: "l.leads = to.addr\n\t\tl.retireAll()", new: "l.leads = to.addr",
	},
	{
		name: "failover-opening", breaks: "a connection to the old master is used that was being opened", in: "redis.connTracker.add", suites: redis,
		old: "if to.at.Before(l.since) {", new: "if false {",
	},
	{
		name: "failover-unnamed", breaks: "the address of the master that Sentinels name is not known", in: "redis.opener.connect", suites: redis,
		old: "\t\tc = n.Conn\n", new: "\t\tc, n.addr = n.Conn, addr\n",
	},
	{
		name: "far-lost", breaks: "what a late reply shows to be charged is owed", in: "outage.Fallback.await", suites: redis,
		old: "case of.Known && !made(of):", new: "case of.Known:",
	},
	{
		name: "far-refused", breaks: "what Redis received too late is charged nowhere", in: "outage.Fallback.await", suites: redis,
		old: "case of.Known && !made(of):", new: "case false:",
	},
	{
		name: "far-few", breaks: "a Redis that is late for few requests is told as used", in: "redis.alone.turn", suites: redis,
		old: "return false // the period lasts", new: "a.is = false // the period lasts",
	},
	{
		name: "foreign-subscription", breaks: "a reply that has not the form of a message ends the process", in: "subscribe.receive", suites: []suite{subscribing},
		old: "if cause := recover(); cause != nil {", new: "if cause := any(nil); cause != nil {",
	},
	{
		name: "far-told", breaks: "a Redis that decides few checks in time is told as used", in: "redis.alone.turn", suites: redis,
		old: "a.is = failed > decided\n\t} else", new: "a.is = false\n\t} else",
	},
	{
		name: "far-revoked", breaks: "a call that waits for a connection runs after its deadline", in: "redis.heading.MarshalBinary", suites: redis,
		old: "h.b = appendNumber(h.b[:8], 0)", new: "_ = h.b",
	},
	{
		name: "node-script", breaks: "the script is not loaded where a slot is moved to", in: "redis.nodeHook.ProcessPipelineHook", suites: redis,
		old: "if err := next(ctx, cmds); !isUnknown(o.Err()) {", new: "if err := next(ctx, cmds); true {",
	},
	{
		name: "node-beats", breaks: "the last number of instances is lost while their node is away", in: "redis.instances.beat", suites: redis,
		old: "\tcase err != nil:\n\t\ti.failed()\n", new: "\tcase err != nil:\n\t\ti.live.Store(0)\n",
	},
	{
		name: "node-anew", breaks: "fewer instances are accepted while their list is evicted", in: "redis.instances.counts", suites: redis,
		old: "if anew && n < i.live.Load() {", new: "if false {",
	},
	{
		name: "node-restart", breaks: "a restart from a dump after the last heartbeat is not noticed", in: "redis.once.teach", suites: redis,
		old: "told != 0 && o.script.codes == \"\"", new: "false && told != 0",
	},
	{
		name: "node-trouble", breaks: "a node that refuses everything in unknown words is used", in: "redis.breaker.beatFailed", suites: redis,
		old: ">= longestTrouble {", new: ">= 1000*longestTrouble {",
	},
	{
		name: "node-rejected", breaks: "a node that accepts heartbeats alone is used again and again", in: "redis.maintainer.beat", suites: redis,
		old: "if err != nil || rejected == nil {", new: "if true {",
	},
	{
		name: "node-halfway", breaks: "a call that a revoked right has ended is charged again", in: "redis.mayHaveRun", suites: redis,
		old: "return !is || !isUnrun(answered)", new: "return !is",
	},
	{
		name: "node-unknown", breaks: "a call is charged again after words that nobody knows", in: "redis.isUnrun", suites: redis,
		old: "return false", new: "return true",
	},
	{
		name: "node-undecided", breaks: "a node that decides no check is used again after each heartbeat", in: "redis.conn.outcome", suites: redis,
		old: "n.rejected.Store(targetOf(some[0]))", new: "_ = some[0]",
	},
	{
		name: "node-some", breaks: "a node that decides some checks alone is told as used", in: "redis.outcomes.fails", suites: redis,
		old: "o.failed*someOf >= decided && ", new: "false && ",
	},
	{
		name: "node-refused", breaks: "a node that refuses a few checks is told as used", in: "redis.outcomes.fails", suites: redis,
		old: "o.refused.n >= someSpells", new: "false",
	},
	{
		name: "node-lost", breaks: "a node is told as away because of a few lost packets", in: "redis.outcomes.fails", suites: redis,
		old: "(isAnswer(err) || errors.Is(err, errReply)) && ", new: "",
	},
	{
		name: "node-moved", breaks: "a node is told as away because a slot is being moved", in: "redis.outcomes.fails", suites: redis,
		old: " && !aboutSlot(err)", new: "",
	},
	{
		name: "node-away-why", breaks: "a reset does not say why the node is away", in: "redis.conn.away", suites: redis,
		old: "if n.cause == nil {", new: "if true {",
	},
	{
		name: "node-lacks", breaks: "where neither way to send the script is accepted, the wrong one is told", in: "redis.lacks", suites: redis,
		old: "|| r.advice == lacksScript", new: "",
	},
	{
		name: "node-eval", breaks: "a script is not sent with a call where SCRIPT is refused", in: "redis.once.teach", suites: redis,
		old: "if !isUnknown(o.Err()) {", new: "if true {",
	},
}
