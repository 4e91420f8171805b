//go:build unix

package main

const (
	nodeGo   = "internal/stores/redis/node.go"
	stickyGo = "internal/stores/redis/sticky.go"
)

// nodeMutants break the independence of the nodes of a Cluster.
var nodeMutants = []mutant{
	{
		name: "deadline-unbounded", breaks: "a call waits for a connection for as long as it takes", file: "internal/stores/redis/deadline.go", suites: redis,
		old: "if !d.looked && d.Err() == nil {", new: "if d.Err() == nil {",
	},
	{
		name: "sticky-paused", breaks: "a connection that the server has closed meanwhile is used", file: stickyGo, suites: redis,
		old: "|| now.Sub(p.used) >= stickyFor)", new: "|| now.Sub(p.used) >= 1000*stickyFor)",
	},
	{
		name: "sticky-retired", breaks: "a connection from before a failure is used", file: stickyGo, suites: redis,
		old: "p.changes != n.tracker.changes.Load() || ", new: "",
	},
	{
		name: "sticky-removed", breaks: "a connection stays in use when another of its node is closed", file: "internal/stores/redis/connections.go", suites: redis,
		old: "\tl.changes.Add(1)\n\tif l.open[c] {", new: "\tif l.open[c] {",
	},
	{
		name: "sticky-error", breaks: "the connection of a call that failed is kept", file: stickyGo, suites: redis,
		old: "p.used = now; err != nil {", new: "p.used = now; false {",
	},
	{
		name: "sticky-ended", breaks: "a call is sent though its context has ended", file: stickyGo, suites: redis,
		old: "o.beat || ctx.Err() != nil {", new: "o.beat {",
	},
	{
		name: "sticky-lost", breaks: "a connection that is not kept is not given back to the pool", file: stickyGo, suites: redis,
		old: "\t\t_ = (*c).Close()\n", new: "",
	},
	{
		name: "sticky-outage", breaks: "connections from before an outage stay lent while it lasts", file: stickyGo, suites: redis,
		old: "if !o.beat {", new: "if s != nil {",
	},
	{
		name: "sticky-small", breaks: "a small pool keeps connections from heartbeats", file: stickyGo, suites: redis,
		old: "!ok || size < leastForSticky", new: "!ok",
	},
	{
		name: "node-shared", breaks: "all masters of a Cluster share one breaker", file: nodeGo, suites: redis,
		old: "if n := (*ns.byAddress.Load())[address]; n != nil {", new: "for _, n := range *ns.byAddress.Load() {",
	},
	{
		name: "node-epochs", breaks: "denials by one node hold at another", file: "internal/stores/redis/server.go", suites: redis,
		old: "return n.serial<<48 + n.failures.Load()", new: "return n.failures.Load()",
	},
	{
		name: "node-failures", breaks: "denials are kept after a failure of their node", file: "internal/stores/redis/server.go", suites: redis,
		old: "+ n.failures.Load() +", new: "+",
	},
	{
		name: "node-ramp", breaks: "a promoted replica decides all keys of its master at once", file: nodeGo, suites: redis,
		old: "if !ns.allUp() {", new: "if len(ns.masters) == 0 {",
	},
	{
		name: "node-replaced", breaks: "a master that was replaced counts as away", file: nodeGo, suites: redis,
		old: "ns.report(n, true, nil)", new: "_ = n",
	},
	{
		name: "node-replica", breaks: "nodes that are none any more are kept", file: nodeGo, suites: redis,
		old: "return !n.serves.Load() && !n.tracker.any()", new: "return n.address == \"\"",
	},
	{
		name: "node-first", breaks: "what stands for a Cluster at the start stays in use", file: nodeGo, suites: redis,
		old: "ns.removeLocked(ns.first)", new: "_ = ns",
	},
	{
		name: "node-begin", breaks: "a store asks a Cluster that the one before knew to be away", file: nodeGo, suites: redis,
		old: "ns.o.Cluster && before.anyUp().breaker.open.Load()", new: "ns.first.breaker.open.Load()",
	},
	{
		name: "node-back", breaks: "the keys of a node return at once", file: nodeGo, suites: redis,
		old: "n.comesBack, //", new: "func() {}, //",
	},
	{
		name: "node-late", breaks: "a node that is no master is reported", file: nodeGo, suites: redis,
		old: "\tif n.serves.Load() {\n\t\tns.report(", new: "\tif n != nil {\n\t\tns.report(",
	},
	{
		name: "node-since", breaks: "each node that fails starts the outage anew", file: nodeGo, suites: redis,
		old: "others = others && (m == n || !m.breaker.open.Load())", new: "_ = m",
	},
	{
		name: "node-all", breaks: "the store is up when all but one of its nodes are", file: nodeGo, suites: redis,
		old: "return len(down) == 0, ns.since, down", new: "return len(down) <= 1, ns.since, down",
	},
	{
		name: "node-wrong", breaks: "unexpected replies open the breaker", file: redisGo, suites: redis,
		old: "if f == FailWrong || c.o.Cluster && aboutSlot(err) {", new: "if c.o.Cluster && aboutSlot(err) {",
	},
	{
		name: "node-slot", breaks: "a slot that is moved takes its node down", file: redisGo, suites: redis,
		old: "if f == FailWrong || c.o.Cluster && aboutSlot(err) {", new: "if f == FailWrong {",
	},
	{
		name: "node-moving-beat", breaks: "a node is not used again while the slot of its heartbeats is moved", file: "internal/stores/redis/maintain.go", suites: redis,
		old: "wait, moving = probeEvery, tag", new: "wait, moving = probeEvery, \"\"",
	},
	{
		name: "node-moving", breaks: "a batch that meets a moving slot is not sent one by one", file: redisGo, suites: redis,
		old: "if len(q.batch) > 1 && isMoving(err) {", new: "if len(q.batch) > 128 && isMoving(err) {",
	},
	{
		name: "node-redirect", breaks: "a call goes to a node that is away if another redirects it", file: "internal/stores/redis/hook.go", suites: redis,
		old: "if !o.beat && o.node.breaker.open.Load() {", new: "if o.beat && o.node.breaker.open.Load() {",
	},
	{
		name: "node-lookup", breaks: "what a call was to charge that finds no node or connection is lost", file: evalGo, suites: redis,
		old: "if head.is.Load() != written {", new: "if false {",
	},
	{
		name: "node-written", breaks: "what a call has charged whose reply is lost is charged again", file: "internal/stores/redis/encode.go", suites: redis,
		old: "!h.is.CompareAndSwap(unwritten, written) &&", new: "",
	},
	{
		name: "far-retire", breaks: "one call that is late has all connections replaced", file: redisGo, suites: redis,
		old: "if f == FailTimeout && !n.breaker.open.Load() {", new: "if n.tracker.retire(sent); f == FailTimeout && !n.breaker.open.Load() {",
	},
	{
		name: "far-wait", breaks: "a call that is late is given up, and its connection closed", file: redisGo, suites: redis,
		old: "time.Now().Add(n.tracker.grace)", new: "q.end",
	},
	{
		name: "far-overlap", breaks: "calls to a Redis that is far wait for each other", file: "internal/stores/redis/distance.go", suites: redis,
		old: "callEvery), mostInFlight))", new: "callEvery), callsInFlight))",
	},
	{
		name: "far-greeting", breaks: "requests greet over new connections", file: connectionsGo, suites: redis,
		old: "k.login, err = o.greet(ctx, k, false)", new: "err = ctx.Err()",
	},
	{
		name: "age-kept", breaks: "connections have no greatest age", file: "internal/stores/redis/age.go", suites: redis,
		old: "now.Sub(c.born) >= c.life", new: "false",
	},
	{
		name: "age-alone", breaks: "connections do not follow one that leads to another server", file: "internal/stores/redis/age.go", suites: redis,
		old: "c.born.Before(l.moved) && c.remote != l.remote", new: "false",
	},
	{
		name: "login-newest", breaks: "a password that the server does not know yet is the only one that is tried", file: "internal/stores/redis/secrets.go", suites: redis,
		old: "before != nil && *before != login", new: "false",
	},
	{
		name: "login-kept", breaks: "connections stay whose login the server does not accept any more", file: "internal/stores/redis/age.go", suites: redis,
		old: "|| c.login != login", new: "",
	},
	{
		name: "endpoint-unknown", breaks: "a host that a Cluster does not tell is this one", file: "internal/stores/redis/endpoint.go", suites: redis,
		old: "\t\treturn h.host\n", new: "\t\treturn host\n",
	},
	{
		name: "far-opening", breaks: "requests wait for connections that are opened", file: nodeGo, suites: redis,
		old: "min(connections/2, int(n.tracker.ready.Load())-1)", new: "connections/2",
	},
	{
		name: "far-ended", breaks: "what a store that has ended loses is counted nowhere", file: "internal/stores/redis/lifetime.go", suites: redis,
		old: "observers.Ended{Observer: s.conn.observer.get()}", new: "nil",
	},
	{
		name: "metrics-gone", breaks: "what a zone loses that is gone is not shown", file: "internal/metrics/collect.go", suites: []suite{reloads},
		old: "|| series.GetCounter().GetValue() > 0", new: "",
	},
	{
		name: "ended-replaced", breaks: "what a store is owed is given up when it is not configured any more", file: "internal/stores/redis/store.go", suites: []suite{redisStore},
		old: "s.fallback.Hands.End(ended)", new: "s.fallback.Hands.End(false && ended)",
	},
	{
		name: "ended-owed", breaks: "what is owed in tables of a store that ends is given up at once", file: "internal/stores/outage/uncharged.go", suites: redis,
		old: "d.ends = ends", new: "d.ends = false",
	},
	{
		name: "far-idle", breaks: "a Redis that was far is told as away until something is checked", file: "internal/stores/redis/far.go", suites: redis,
		old: "a.is = a.is && way >= timeout", new: "_ = timeout",
	},
	{
		name: "failover-new", breaks: "calls to the old master have connections to the new one replaced", file: connectionsGo, suites: redis,
		old: "if !sent.Before(l.since) {", new: "if true {",
	},
	{
		name: "failover-old", breaks: "connections to the old master are used after another is named", file: connectionsGo, suites: redis,
		old: "l.leads = to.addr\n\t\tl.retireAll()", new: "l.leads = to.addr",
	},
	{
		name: "failover-opening", breaks: "a connection to the old master is used that was being opened", file: connectionsGo, suites: redis,
		old: "if to.at.Before(l.since) {", new: "if false {",
	},
	{
		name: "failover-unnamed", breaks: "the address of the master that Sentinels name is not known", file: connectionsGo, suites: redis,
		old: "\t\tc = n.Conn\n", new: "\t\tc, n.addr = n.Conn, addr\n",
	},
	{
		name: "far-lost", breaks: "what a late reply shows to be charged is owed", file: aloneGo, suites: redis,
		old: "case of.Known && !made(of):", new: "case of.Known:",
	},
	{
		name: "far-refused", breaks: "what Redis received too late is charged nowhere", file: aloneGo, suites: redis,
		old: "case of.Known && !made(of):", new: "case false:",
	},
	{
		name: "far-few", breaks: "a Redis that is late for few requests is told as used", file: "internal/stores/redis/far.go", suites: redis,
		old: "return false // the period lasts", new: "a.is = false // the period lasts",
	},
	{
		name: "foreign-subscription", breaks: "a reply that has not the form of a message ends the process", file: "internal/subscribe/subscribe.go", suites: []suite{subscribing},
		old: "if cause := recover(); cause != nil {", new: "if cause := any(nil); cause != nil {",
	},
	{
		name: "far-told", breaks: "a Redis that decides few checks in time is told as used", file: "internal/stores/redis/far.go", suites: redis,
		old: "a.is = failed > decided\n\t} else", new: "a.is = false\n\t} else",
	},
	{
		name: "far-revoked", breaks: "a call that waits for a connection runs after its deadline", file: "internal/stores/redis/encode.go", suites: redis,
		old: "h.b = appendNumber(h.b[:8], 0)", new: "_ = h.b",
	},
	{
		name: "node-script", breaks: "the script is not loaded where a slot is moved to", file: "internal/stores/redis/hook.go", suites: redis,
		old: "if err := next(ctx, cmds); !isUnknown(o.Err()) {", new: "if err := next(ctx, cmds); true {",
	},
	{
		name: "node-beats", breaks: "the last number of instances is lost while their node is away", file: "internal/stores/redis/instances.go", suites: redis,
		old: "\tcase err != nil:\n\t\ti.failed()\n", new: "\tcase err != nil:\n\t\ti.live.Store(0)\n",
	},
	{
		name: "node-anew", breaks: "fewer instances are accepted while their list is evicted", file: "internal/stores/redis/instances.go", suites: redis,
		old: "if anew && n < i.live.Load() {", new: "if false {",
	},
	{
		name: "node-restart", breaks: "a restart from a dump after the last heartbeat is not noticed", file: "internal/stores/redis/once.go", suites: redis,
		old: "told != 0 && o.script.codes == \"\"", new: "false && told != 0",
	},
	{
		name: "node-trouble", breaks: "a node that refuses everything in unknown words is used", file: "internal/stores/redis/breaker.go", suites: redis,
		old: ">= longestTrouble {", new: ">= 1000*longestTrouble {",
	},
	{
		name: "node-rejected", breaks: "a node that accepts heartbeats alone is used again and again", file: "internal/stores/redis/maintain.go", suites: redis,
		old: "if err != nil || rejected == nil {", new: "if true {",
	},
	{
		name: "node-halfway", breaks: "a call that a revoked right has ended is charged again", file: "internal/stores/redis/ran.go", suites: redis,
		old: "return !is || !isUnrun(answered)", new: "return !is",
	},
	{
		name: "node-unknown", breaks: "a call is charged again after words that nobody knows", file: "internal/stores/redis/ran.go", suites: redis,
		old: "\t}\n\treturn false\n}\n", new: "\t}\n\treturn true\n}\n",
	},
	{
		name: "node-undecided", breaks: "a node that decides no check is used again after each heartbeat", file: "internal/stores/redis/outcomes.go", suites: redis,
		old: "n.rejected.Store(targetOf(some[0]))", new: "_ = some[0]",
	},
	{
		name: "node-some", breaks: "a node that decides some checks alone is told as used", file: "internal/stores/redis/outcomes.go", suites: redis,
		old: "o.some = now\n", new: "_ = now\n",
	},
	{
		name: "node-eval", breaks: "a script is not sent with a call where SCRIPT is refused", file: "internal/stores/redis/once.go", suites: redis,
		old: "if !isUnknown(o.Err()) {", new: "if true {",
	},
}
