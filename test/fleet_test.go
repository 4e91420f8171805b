package test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/internal/stores/redisconfig"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/topk"
)

// member is another instance, which counts what the test says.
type member struct {
	ignored
	now   atomic.Pointer[cli.Member]
	times atomic.Int64 // that it was asked
}

func (m *member) Figures() []byte {
	m.times.Add(1)
	text, _ := json.Marshal(m.now.Load())
	return text
}

// join starts an instance beside that of a site.
func join(t *testing.T, o redis.ConnOptions, m cli.Member) (*redis.Store, *member) {
	t.Helper()
	o.Prefix, o.Timeout, o.DialTimeout = redisconfig.DefaultKeyPrefix, 5*time.Second, 5*time.Second
	other := new(member)
	other.now.Store(&m)
	s := redis.New(redis.Options{Name: "redis", Clock: clock.Now, ConnOptions: o}, other)
	s.Start(0)
	t.Cleanup(func() { _ = s.Destruct() })
	return s, other
}

// caddyNamed is what an instance with a zone z tells the others.
func caddyNamed(host string, own cli.Instance, allowed, denied uint64) cli.Member {
	own.Host = host
	top := &cli.Top{
		Busy:   []topk.Hit{{Key: "aa", Times: allowed}, {Key: "bb", Times: 1}},
		Denied: []topk.Hit{{Key: "bb", Times: denied, Cause: "blocked"}},
	}
	return cli.Member{Instance: own, Seen: time.Now(), Mode: "shared", Requests: metrics.Requests{Allowed: allowed, Denied: denied}, Zones: []cli.MemberZone{
		{Zone: "z", Decisions: map[string]uint64{"allowed": allowed, "denied": denied}, Denied: map[string]uint64{"1": denied}, Top: top, Places: &metrics.PlaceState{Limit: 30, InFlight: 12, Waiting: map[string]int{"0": 4}}},
		{Zone: "only-" + host, Decisions: map[string]uint64{"allowed": 1}},
	}}
}

// fleetZones returns the answer about all instances.
func (s *site) fleetZones() (all cli.Zones, z cli.Zone) {
	s.Helper()
	if status, text := s.admin("GET", "zones?fleet", "", &all); status != 200 || all.Fleet == nil {
		s.Fatalf("zones?fleet: %d %s", status, text)
	}
	for _, x := range all.Zones {
		if x.Name == "z" {
			z = x
		}
	}
	return all, z
}

const fleetSite = "rate_limit {\nzone z {\nrule 2/1h\n}\n}\nrespond ok"

// TestFleet adds up what three instances count: on one server, behind Sentinels and in a Cluster. One
// that ends is missed until others know that it has gone.
func TestFleet(t *testing.T) {
	for name, start := range map[string]func() (app string, o redis.ConnOptions){
		"single": func() (string, redis.ConnOptions) {
			srv := redistest.Start(t)
			return redisStore(srv.Addr, "timeout 5s"), redis.ConnOptions{Addresses: []string{srv.Addr}}
		},
		"sentinel": func() (string, redis.ConnOptions) {
			w := redistest.StartSentinel(t)
			addrs := w.Addrs()
			return redisStore(strings.Join(addrs, " "), "timeout 5s", "sentinel "+redistest.SentinelMaster), redis.ConnOptions{Addresses: addrs, Master: redistest.SentinelMaster}
		},
		"cluster": func() (string, redis.ConnOptions) {
			var addrs []string
			for _, srv := range redistest.StartCluster(t, 3) {
				addrs = append(addrs, srv.Addr)
			}
			return redisStore(strings.Join(addrs, " "), "timeout 5s", "cluster"), redis.ConnOptions{Addresses: addrs, Cluster: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			app, o := start()
			s := serve(t, setup{app: app, site: fleetSite})
			before := s.zones()
			s.want(req{}, 200, 200, 429)
			own := s.zones()
			other := own.Instance
			other.Config = "ffff"
			join(t, o, caddyNamed("a", own.Instance, 100, 10))
			b, _ := join(t, o, caddyNamed("b", other, 1000, 200))
			until(t, "three instances", func() bool { return s.metric("instances", "store", "redis") == 3 })
			var all cli.Zones
			var z cli.Zone
			until(t, "three answers", func() bool {
				all, z = s.fleetZones()
				return all.Fleet.Answered == 3 && all.Fleet.Instances == 3
			})
			base := before.Requests.Denied
			if all.Requests.Denied != base+1+10+200 || z.Decisions["denied"] < 211 || z.Denied["1"] < 211 || all.Fleet.Alone {
				t.Errorf("requests %+v, zone %+v, fleet %+v", all.Requests, z.Decisions, all.Fleet)
			}
			m := all.Fleet.Members
			if len(m) != 3 || !m[0].Self || m[1].Host != "a" || m[1].OtherRules || m[2].Host != "b" || !m[2].OtherRules || m[2].OtherBuild || m[1].Zones != nil {
				t.Errorf("members %+v", m)
			}
			if p := z.PlacesOfAll; len(p) != 2 || p[0].Host != "a" || p[0].ID != m[1].ID || p[0].InFlight != 12 || p[1].Host != "b" {
				t.Errorf("places %+v", p)
			}
			found := false
			for _, x := range all.Zones {
				found = found || x.Name == "only-b" && x.Origin == "another instance"
			}
			if !found {
				t.Error("a zone that only another instance has is left out")
			}
			var top cli.Top
			s.admin("GET", "zones/z/top?fleet", "", &top)
			if top.Fleet == nil || top.Busy[0].Key != "aa" || top.Busy[0].Times != 1100 || top.Denied[0].Key != "bb" || top.Denied[0].Times != 210 || top.Denied[0].Cause != "blocked" {
				t.Errorf("top %+v", top)
			}
			s.wantShell("3 of 3 instances\nINSTANCE", "zones", "--fleet")
			s.wantShell("another configuration", "zones", "--fleet")
			s.wantShell("in_flight adaptive on a, 12 of 30 in flight, 4 waiting", "zones", "--fleet")
			s.wantShell("1100   aa", "top", "z", "--fleet")
			s.wantShell("3 of 3 instances", "top", "--fleet")

			_ = b.Destruct()
			deadline := time.Now().Add(time.Minute)
			for all.Fleet.Answered != 2 && time.Now().Before(deadline) {
				time.Sleep(200 * time.Millisecond)
				all, _ = s.fleetZones()
			}
			if m := all.Fleet.Members; all.Fleet.Answered != 2 || len(m) == 3 && (!m[2].Missing || m[2].Host != "b" || time.Since(m[2].Seen) < 14*time.Second) {
				t.Errorf("after its end %+v", all.Fleet)
			}
			if all.Requests.Denied != base+11 {
				t.Errorf("%d denied, want what two instances count", all.Requests.Denied)
			}
		})
	}
}

// TestFleetInOutage has Redis go away while somebody looks: the instance says that it sees only
// itself, and when it saw the others last.
func TestFleetInOutage(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 1s", "dial_timeout 200ms"), site: fleetSite})
	own := s.zones()
	join(t, redis.ConnOptions{Addresses: []string{srv.Addr}}, caddyNamed("a", own.Instance, 100, 10))
	until(t, "two instances", func() bool { return s.metric("instances", "store", "redis") == 2 })
	until(t, "two answers", func() bool { all, _ := s.fleetZones(); return all.Fleet.Answered == 2 })
	srv.Kill()
	until(t, "the store to be away", func() bool {
		s.send(req{})
		return s.metric("store_up", "store", "redis") == 0
	})
	all, _ := s.fleetZones()
	f := all.Fleet
	if !f.Alone || f.Why == "" || f.Answered != 1 || f.Instances != 2 || len(f.Members) != 2 || !f.Members[1].Missing || f.Members[0].Mode != "fallback" {
		t.Errorf("alone: %+v", f)
	}
	s.wantShell("1 of 2 instances: only this one is seen here", "zones", "--fleet")
	srv.Run()
	until(t, "both again", func() bool { all, _ := s.fleetZones(); return all.Fleet.Answered == 2 && !all.Fleet.Alone })
}

// TestFleetWithoutANode has a node of a Cluster go away while somebody looks, which has not the figures: all are seen.
func TestFleetWithoutANode(t *testing.T) {
	nodes := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	var addrs []string
	for _, srv := range nodes {
		addrs = append(addrs, srv.Addr)
	}
	s := serve(t, setup{app: redisStore(strings.Join(addrs, " "), "timeout 1s", "dial_timeout 200ms", "cluster"), site: fleetSite})
	join(t, redis.ConnOptions{Addresses: addrs, Cluster: true}, caddyNamed("a", s.zones().Instance, 100, 10))
	until(t, "two answers", func() bool { all, _ := s.fleetZones(); return all.Fleet.Answered == 2 })
	slot, err := nodes[0].Client().ClusterKeySlot(t.Context(), "diana:fleet").Result()
	if err != nil {
		t.Fatal(err)
	}
	nodes[(int(slot)*3/16384+1)%3].Kill()
	until(t, "the node to be away", func() bool { return s.metric("store_up", "store", "redis") == 0 })
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if all, _ := s.fleetZones(); all.Fleet.Alone || all.Fleet.Answered != 2 {
			t.Fatalf("fleet %+v", all.Fleet)
		}
	}
}

var commandCalls = regexp.MustCompile(`cmdstat_([a-z|]+):calls=(\d+)`)

// load returns how many calls of each command a server has run, and the bytes that it has received.
func load(srv *redistest.Server) (calls map[string]int, received int) {
	text := srv.Client().Info(context.Background(), "everything").Val()
	calls = make(map[string]int)
	for _, m := range commandCalls.FindAllStringSubmatch(text, -1) {
		calls[m[1]], _ = strconv.Atoi(m[2])
	}
	_, rest, _ := strings.Cut(text, "total_net_input_bytes:")
	received, _ = strconv.Atoi(rest[:strings.IndexByte(rest, '\r')])
	return calls, received
}

// TestFleetCostsNothingUnwatched checks that instances send Redis nothing for the fleet while nobody
// looks, and write their figures about every five seconds while somebody does, and for 15 s after.
func TestFleetCostsNothingUnwatched(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 5s"), site: fleetSite})
	_, other := join(t, redis.ConnOptions{Addresses: []string{srv.Addr}}, caddyNamed("a", s.zones().Instance, 1, 1))
	until(t, "two instances", func() bool { return s.metric("instances", "store", "redis") == 2 })
	begun := time.Now()
	calls, received := load(srv)
	time.Sleep(4 * time.Second)
	now, bytes := load(srv)
	t.Logf("unwatched, two instances, %v: %d calls of the script, %d bytes", time.Since(begun), now["evalsha"]-calls["evalsha"], bytes-received)
	for name, n := range now {
		switch name {
		case "evalsha", "time", "info", "ping", "subscribe", "get", "set", "setrange", "getrange", "pexpire", "del", "hello", "script|load": // of heartbeats and of this test
		default:
			if n != calls[name] {
				t.Errorf("%s was called %d times while nobody looked", name, n-calls[name])
			}
		}
	}
	if now["hset"] != 0 || now["hscan"] != 0 || now["publish"] != 0 || other.times.Load() != 0 {
		t.Errorf("calls %v while nobody looked", now)
	}
	for range 8 {
		s.fleetZones()
		time.Sleep(time.Second)
	}
	watched, _ := load(srv)
	if n := other.times.Load(); n < 2 || n > 5 || watched["hset"] < 4 || watched["hset"] > 10 {
		t.Errorf("the other wrote %d times, of %d in all, in eight seconds that somebody looked", n, watched["hset"])
	}
	until(t, "nothing to be written any more", func() bool {
		before, _ := load(srv)
		time.Sleep(6500 * time.Millisecond)
		after, _ := load(srv)
		return before["hset"] == after["hset"]
	})
	srv.CheckTTLs()
}

// TestFiguresAreBounded checks that an instance with a thousand zones writes at most 64 KiB, with the
// busiest zones first.
func TestFiguresAreBounded(t *testing.T) {
	var zones strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&zones, "zone a-zone-with-a-name-of-some-length-%d {\nmatch path /%d/*\nrule 100/1h\n}\n", i, i)
	}
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 5s"), site: "rate_limit {\nlog_key\n" + zones.String() + "}\nrespond ok"})
	for i := range 1000 {
		s.send(req{path: fmt.Sprintf("/%d/", i), ip: "10.0.0.1"})
	}
	for i := range 60 {
		s.send(req{path: "/7/", ip: fmt.Sprintf("10.0.1.%d", i)})
	}
	s.fleetZones()
	ctx := context.Background()
	var text string
	until(t, "the figures", func() bool {
		for _, v := range srv.Client().HGetAll(ctx, "diana:fleet").Val() {
			text = v
		}
		return text != ""
	})
	var m cli.Member
	if err := json.Unmarshal([]byte(text[8:]), &m); err != nil || len(text) > 64<<10 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	var sum uint64
	for _, z := range m.Zones {
		sum += z.Decisions["allowed"]
	}
	if first := m.Zones[0]; first.Zone != "a-zone-with-a-name-of-some-length-7" || len(first.Top.Busy) != 20 || sum < 1060 || m.Zones[len(m.Zones)-1].Zone != "" {
		t.Errorf("%d bytes, %d zones, %d allowed, the first %+v", len(text), len(m.Zones), sum, first)
	}
}

// figures writes what an instance tells the others, at a time by the server's clock.
func figures(t *testing.T, srv *redistest.Server, instance, text string, at time.Time) {
	t.Helper()
	all := append(binary.LittleEndian.AppendUint64(nil, uint64(at.UnixMilli())), text...)
	if err := srv.Client().HSet(t.Context(), "diana:fleet", instance, all).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestFiguresOfAnotherVersion reads figures whose zones have none of the keys that those of this version have, and figures
// of another kind, which are in no sum.
func TestFiguresOfAnotherVersion(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 5s"), site: "rate_limit {\nzone z {\nrule 9/1h\n}\n}\nrespond ok"})
	s.want(req{}, 200)
	figures(t, srv, "1", `{"zones":[{"zone":"a","top":{}},{"zone":"b","top":{"most_denied":[{"key":"x","times":1}]}}]}`, time.Now())
	figures(t, srv, "2", `{"zones":{"a":{}}}`, time.Now())
	var tops cli.Tops
	if status, text := s.admin("GET", "top?fleet", "", &tops); status != 200 || tops.Fleet == nil || tops.Fleet.Answered != 2 {
		t.Errorf("status %d, %s", status, text)
	}
	other := tops.Fleet.Members[len(tops.Fleet.Members)-1]
	if other.Host != "unreadable" || !other.Missing || !other.OtherBuild || other.Mode != "shared" {
		t.Errorf("of another kind: %+v", other)
	}
}

// TestManyOtherZones reads figures of instances that have together more zones of their own than are named: the rest is added
// up.
func TestManyOtherZones(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 5s"), site: fleetSite})
	const others, each = 40, 500
	for i := range others {
		m := cli.Member{Seen: time.Now()}
		for n := range each {
			m.Zones = append(m.Zones, cli.MemberZone{
				Zone: fmt.Sprintf("%d-%d", i, n), Decisions: map[string]uint64{"allowed": 1}, Top: &cli.Top{Busy: []topk.Hit{{Key: "x", Times: 1}}},
			})
		}
		text, _ := json.Marshal(m)
		figures(t, srv, strconv.Itoa(i+1), string(text), time.Now())
	}
	all, _ := s.fleetZones()
	var sum uint64
	for _, z := range all.Zones {
		sum += z.Decisions["allowed"]
	}
	if len(all.Zones) != 1+1000+1 || sum != others*each {
		t.Errorf("%d zones with %d requests, want 1002 with %d", len(all.Zones), sum, others*each)
	}
	var tops cli.Tops
	begun := time.Now()
	if status, _ := s.admin("GET", "top?fleet", "", &tops); status != 200 || len(tops.Zones) != 1001 {
		t.Errorf("status %d, keys of %d zones, want 1001", status, len(tops.Zones))
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("their keys took %v", took)
	}
}

// TestFiguresOfMadTimes reads figures with times that a year of four digits does not hold once the clocks' difference is
// taken from them: the answer about the others is given.
func TestFiguresOfMadTimes(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 5s"), site: fleetSite})
	figures(t, srv, "1", `{"seen":"0001-01-01T00:00:01Z","since":"9999-12-31T23:59:59Z","zones":[{"zone":"z","decisions":{"allowed":7}}]}`, time.Now())
	all, z := s.fleetZones()
	if all.Fleet.Answered != 2 || z.Decisions["allowed"] != 7 {
		t.Errorf("fleet %+v, zone %+v", all.Fleet, z.Decisions)
	}
}

// TestFiguresOfAnotherClock reads the figures of an instance whose clock is an hour ahead, and figures from the future: before a
// failover, the server's clock was an hour ahead, and the instance has gone.
func TestFiguresOfAnotherClock(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 5s"), site: fleetSite})
	now := time.Now()
	ahead := caddyNamed("ahead", s.zones().Instance, 1, 1)
	ahead.Seen, ahead.ModeSince = now.Add(time.Hour), now.Add(time.Hour-time.Minute)
	ahead.Zones[0].Places.Last = &metrics.PlaceMove{At: now.Add(time.Hour - 2*time.Minute)}
	text, _ := json.Marshal(ahead)
	figures(t, srv, "1", string(text), now)
	figures(t, srv, "2", string(text), now.Add(time.Hour))
	all, z := s.fleetZones()
	if f := all.Fleet; f.Answered != 2 || len(f.Members) != 2 {
		t.Fatalf("fleet %+v", f)
	}
	m, moved := all.Fleet.Members[1], z.PlacesOfAll[0].Last.At
	if d := now.Sub(m.ModeSince); d < 50*time.Second || d > time.Minute+10*time.Second {
		t.Errorf("alone or shared since %v, want a minute", d)
	}
	if d := now.Sub(moved); d < 110*time.Second || d > 2*time.Minute+10*time.Second {
		t.Errorf("the limit moved %v ago, want two minutes", d)
	}
	if n := srv.Client().HExists(t.Context(), "diana:fleet", "2").Val(); n {
		t.Error("figures from the future are kept")
	}
}

// TestZoneNamedOthers has more zones than there is room for, one of which is called others: what the rest counts is told from it.
func TestZoneNamedOthers(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "timeout 5s"), site: "rate_limit {\nzone others {\nrule 9/1h\n}\n}\nrespond ok"})
	s.want(req{}, 200)
	own := s.zones()
	text, _ := json.Marshal(cli.Member{Instance: own.Instance, Seen: time.Now(), Mode: "shared", Zones: []cli.MemberZone{{Decisions: map[string]uint64{"allowed": 70}}}})
	figures(t, srv, "1", string(text), time.Now())
	all, _ := s.fleetZones()
	if len(all.Zones) != 2 || all.Zones[0].Name == all.Zones[1].Name || all.Zones[1].Decisions["allowed"] != 70 {
		t.Errorf("zones %+v", all.Zones)
	}
}
