package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// pick returns whole in a full run and otherwise short.
func pick[T any](whole, short T) T {
	if full {
		return whole
	}
	return short
}

const (
	wholePromise = "no 5xx; 99.9 % of responses within timeout (25 ms) + 10 ms of an unlimited request's, none over 1 s; " +
		"a window holds the bound, one that overlaps the outage twice; no zone denies everything after; one log line per change"
	lostPromise   = "0.95 to 1.10 of a limit per hour, for keys full, half and unused at the first loss"
	permitPromise = "at most twice the capacity (6) at once; none left behind"
	soonBack      = 1500 * time.Millisecond
)

func rows() []row {
	slow := "no decision later than timeout + 5 ms"
	return []row{
		{name: "kill", fault: "Redis killed (kill -9), back after 10 s", target: wholePromise + "; shared again <= 1.5 s", quick: true, run: killed("")},
		{name: "kill-leased", fault: "the same, with lease 50ms", target: wholePromise + "; shared again <= 1.5 s", run: killed("lease 50ms")},
		{name: "stall", fault: "Redis stopped (SIGSTOP) for 5 s", target: "as above; late charges <= pool_size (20) per instance", run: stalled},
		{name: "stutter", fault: "Redis stopped for 50 ms, ten times; then each Caddy for 300 ms, three times", target: "no 5xx; no instance goes away", run: stuttering},
		{name: "half-open", fault: "packets vanish for 4 s", target: "as above, but shared again <= 2 s", run: halfOpen},
		{name: "slow-20ms", fault: "replies 20 ms late", target: slow, run: slowBy(20 * time.Millisecond)},
		{name: "slow-100ms", fault: "replies 100 ms late", target: slow, run: slowBy(100 * time.Millisecond)},
		{name: "slow-500ms", fault: "replies 500 ms late", target: slow, run: slowBy(500 * time.Millisecond)},
		{name: "far-12ms", fault: "Redis 12 ms away, one reply in ten 36 ms, six stalls of up to 300 ms, three seeds", target: farPromise, run: far},
		{name: "pause", fault: "CLIENT PAUSE for 2 s", target: slow, run: paused},
		{name: "script", fault: "another program's script runs for 2 s", target: slow, run: longScript},
		{name: "sentinel", fault: "master killed, Sentinel promotes (down-after 1 s)", target: "no 5xx; shared again <= 4 s after the kill", quick: true, run: sentinelFailover},
		{name: "cluster", fault: "master killed, Cluster promotes (node timeout 1 s)", target: "no 5xx; shared again <= 4 s after the kill", run: clusterFailover},
		{name: "errors", quick: true, several: errorRows},
		{name: "WRONGPASS", fault: "Redis replies WRONGPASS", target: errorPromise + "rejected", run: wrongPassword},
		{name: "LOADING", fault: "restarted Redis replies LOADING", target: errorPromise + "away", run: loading},
		{name: "CLUSTERDOWN", fault: "Redis Cluster replies CLUSTERDOWN", target: errorPromise + "away", run: clusterDown},
		{name: "script-flush", fault: "SCRIPT FLUSH every 100 ms", target: "no decision fails", quick: true, run: scriptFlushed},
		{name: "script-refused", fault: "a proxy without SCRIPT; SCRIPT FLUSH behind it every 100 ms", target: "no decision fails", run: scriptRefused},
		{name: "backend", fault: "one of three servers behind a proxy is down for 8 s, heartbeats succeed", target: "no 5xx; told <= 5 s; shared again <= 5 s; no zone denies everything after", run: backendDown},
		{name: "rotation", fault: "the password is rotated in its file, three times", target: "no decision fails", run: rotation},
		{name: "moved", fault: "new connections lead to another server, while the old one lives; max_age 10s", target: "no 5xx; all calls at the new server <= 20 s; a window of the move holds twice the bound, later ones once", run: moved},
		{name: "flap", fault: "Redis killed and started 10 times in 30 s", target: "one probe per instance at a time; connections <= pool_size (8) + 2 for Pub/Sub; at most one additional limit per flap", run: flapping},
		{name: "pool", fault: "pool of 2, 200 clients, replies 5 ms late", target: "waits <= timeout (+ 10 ms); nothing stuck after", run: tightPool},
		{name: "flushall", fault: "FLUSHALL", target: "at most one additional limit; the next requests as usual", run: countsLost(flushed)},
		{name: "evict", fault: "Redis evicts half of all keys", target: "at most one additional limit; the next requests as usual", run: countsLost(evicted)},
		{name: "lost-flush", fault: "two FLUSHALL in one window", target: lostPromise, run: lostTwice(flushed)},
		{name: "lost-evict", fault: "all keys deleted one by one, twice", target: lostPromise, run: lostTwice(deleted)},
		{name: "lost-cluster", fault: "two FLUSHALL on each node of a Cluster", target: lostPromise, run: lostInCluster},
		{name: "lost-kill", fault: "Redis killed twice, back empty", target: lostPromise, run: lostByKill},
		{name: "lost-twelve", fault: "twelve instances: Redis killed and started 5 times in 15 s; then stopped for 3 s, FLUSHALL, and killed", target: "0.95 to 2 of a limit per hour", run: lostByTwelve},
		{name: "lost-failover", fault: "Sentinel promotes a replica that lags 2 s", target: lostPromise, run: lostByFailover},
		{name: "lost-reset", fault: "keys reset, then FLUSHALL", target: lostPromise + ", after the reset", run: resetInBetween},
		{name: "permits-kill", fault: "Redis killed twice, all permits taken", target: permitPromise, run: permitsKilled},
		{name: "permits-stall", fault: "Redis stopped for 33 s, all permits taken", target: permitPromise, run: permitsStalled},
		{name: "permits-failover", fault: "Sentinel promotes a replica that lags, all permits taken", target: permitPromise, run: permitsFailedOver},
		{name: "permits-reload", fault: "reloads, all permits taken", target: "at most the capacity (6) at once; none left behind", run: permitsReloaded},
		{name: "permits-caddy", fault: "a Caddy with permits killed (kill -9)", target: "at most the capacity (6) at once; free again after 30 s", run: permitsOfKilledCaddy},
		{name: "outage", fault: fmt.Sprintf("Redis stopped for %v, %d requests in flight", outageTime(), heldRequests()), target: "at most twice in_flight, or one more per instance; put back in Redis; none left behind", run: longOutage},
		{name: "slowest", fault: "10,000 permits of one key, of 10,000 keys, a log of a million", target: "no script call over 1 ms; a decision costs the same with 10,000 permits held", run: slowestCalls},
		{name: "flood", fault: "10 million keys of one /48 and 1 million of 100 /16 in process, max_keys 1 million", target: "memory <= stated + 10 %; denied clients stay denied; new clients of other networks pass", run: flood},
		{name: "vanish", fault: "clients disconnect while they wait, reset HTTP/2 streams, stop in their bodies", target: "started requests are charged; at most 1000 wait; nothing leaks", run: vanishing},
		{name: "soak", fault: "load, reloads and flaps for " + soakTime().String(), target: "no 5xx; goroutines, connections, memory flat", quick: true, run: soak},
	}
}

// outage is a fault and its promises.
type outage struct {
	play
	promise
	back time.Duration // maximum time until counts are shared again
}

func (s *scene) through(o outage, out *result) *record {
	s.t.Helper()
	o.calm, o.after = 1500*time.Millisecond, 3500*time.Millisecond
	if o.wait == 0 {
		o.wait = timeout + 10*time.Millisecond
	}
	r := s.play(o.play)
	s.checkAll(r, out, o.promise)
	checkRecovery(s.t, r, out, r.ended, o.back)
	return r
}

func killed(option string) func(t *testing.T, out *result) {
	return func(t *testing.T, out *result) {
		srv := redistest.Start(t)
		begin(t, srv.Addr+" {\n\t\t\t"+option+"\n\t\t}").through(outage{
			play:    play{fault: pick(10*time.Second, 3*time.Second), begin: srv.Kill, end: srv.Run},
			promise: promise{losses: 1}, back: soonBack,
		}, out)
		srv.CheckTTLs()
	}
}

func stalled(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := begin(t, srv.Addr)
	m := watch(t, srv)
	var resumed time.Time
	s.through(outage{play: play{fault: 5 * time.Second, begin: srv.Stall, end: func() {
		resumed = time.Now()
		srv.Resume()
	}}, back: soonBack}, out)
	calls, probes := m.lateCalls(resumed)
	out.report("%d calls and %d probes ran late", calls, probes)
	if calls > 20*instances {
		t.Errorf("%d calls ran late, want at most the pool sizes' sum of %d", calls, 20*instances)
	}
	srv.CheckTTLs()
}

// stuttering stops Redis and the instances for less than what is an outage.
func stuttering(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s := begin(t, srv.Addr)
	r := s.play(play{calm: 1500 * time.Millisecond, after: 2 * time.Second, begin: func() {
		for range 10 {
			srv.Stall()
			time.Sleep(50 * time.Millisecond)
			srv.Resume()
			time.Sleep(400 * time.Millisecond)
		}
		for range 3 {
			for _, c := range s.caddys {
				c.Stall(t)
				time.Sleep(300 * time.Millisecond)
				c.Resume(t)
				time.Sleep(200 * time.Millisecond)
			}
		}
	}})
	harness.OnlyStatuses(t, r.shots, http.StatusOK, http.StatusTooManyRequests)
	out.report("%d requests, no 5xx", len(r.shots))
	checkBounds(t, r, out, promise{})
	s.checkLogs(r, out)
	for i := range s.caddys {
		for _, l := range s.lines(r, i) {
			if l.down() {
				out.late(t, "instance %d went away: %s", i, l.Error)
			}
		}
	}
}

func halfOpen(t *testing.T, out *result) {
	srv := redistest.Start(t)
	p := startProxy(t, srv.Addr)
	begin(t, p.Addr).through(outage{
		play: play{
			fault: 4 * time.Second,
			begin: func() { p.swallow.Store(true) }, end: func() { p.swallow.Store(false) },
		}, back: 2 * time.Second,
	}, out)
}

func slowBy(d time.Duration) func(t *testing.T, out *result) {
	return func(t *testing.T, out *result) {
		srv := redistest.Start(t)
		p := startProxy(t, srv.Addr)
		begin(t, p.Addr).through(outage{
			play:    play{fault: 1500 * time.Millisecond, begin: func() { p.delay.Store(int64(d)) }, end: func() { p.delay.Store(0) }},
			promise: promise{wait: timeout + 5*time.Millisecond}, back: soonBack,
		}, out)
	}
}

func paused(t *testing.T, out *result) {
	srv := redistest.Start(t)
	s, c := begin(t, srv.Addr), srv.Client()
	s.through(outage{
		play:    play{fault: 2 * time.Second, begin: func() { c.ClientPause(t.Context(), 2*time.Second) }},
		promise: promise{wait: timeout + 5*time.Millisecond}, back: soonBack,
	}, out)
}

func longScript(t *testing.T, out *result) {
	srv := redistest.Start(t)
	begin(t, srv.Addr).through(outage{
		play:    play{fault: 2 * time.Second, begin: func() { inBackground(srv, "eval", busy, 0, 2_000_000) }},
		promise: promise{wait: timeout + 5*time.Millisecond}, back: soonBack,
	}, out)
}

func sentinelFailover(t *testing.T, out *result) {
	w := redistest.StartSentinel(t)
	s := begin(t, strings.Join(w.Addrs(), " ")+" {\n\t\t\tsentinel "+redistest.SentinelMaster+"\n\t\t}")
	s.failover(out, w.Master.Kill)
}

func clusterFailover(t *testing.T, out *result) {
	nodes := redistest.StartReplicatedCluster(t, 3)
	s := begin(t, fmt.Sprintf("%s %s %s {\n\t\t\tcluster\n\t\t}", nodes[0].Addr, nodes[1].Addr, nodes[2].Addr))
	s.failover(out, nodes[0].Kill)
}

// failover kills a master permanently. Writes that it had not yet replicated are
// lost.
func (s *scene) failover(out *result, kill func()) {
	s.t.Helper()
	r := s.play(play{calm: 2 * time.Second, fault: 300 * time.Millisecond, after: 6500 * time.Millisecond, begin: kill})
	s.checkAll(r, out, promise{wait: 2*timeout + 10*time.Millisecond, losses: 1})
	checkRecovery(s.t, r, out, r.gone, 4*time.Second)
}
