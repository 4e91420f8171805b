package redisim

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
)

// twin is a connection to a real server, and one to the simulated one in its place.
type twin struct {
	t *testing.T
	*pair
}

func newTwin(t *testing.T, srv *redistest.Server, sim *Server) *twin {
	c, err := net.Dial("tcp", srv.Addr)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	go sim.Serve(far)
	p := &pair{c, near, bufio.NewReader(c), bufio.NewReader(near)}
	t.Cleanup(p.close)
	return &twin{t, p}
}

// ask sends a command to both servers and returns their replies.
func (w *twin) ask(args ...string) (got, want []byte) {
	w.t.Helper()
	command := encode(args)
	_ = w.pair.real.SetDeadline(time.Now().Add(time.Minute))
	_ = w.pair.sim.SetDeadline(time.Now().Add(time.Minute))
	_, _ = w.pair.real.Write(command)
	want, err := readRaw(w.fromReal)
	if err != nil {
		w.t.Fatalf("%.200q: %v", args, err)
	}
	_, _ = w.pair.sim.Write(command)
	if got, err = readRaw(w.fromSim); err != nil {
		w.t.Fatalf("%.200q: simulated: %v", args, err)
	}
	return got, want
}

// same fails the test if the replies to a command differ.
func (w *twin) same(args ...string) string {
	w.t.Helper()
	got, want := w.ask(args...)
	if !bytes.Equal(got, want) {
		w.t.Errorf("%.300q\n got %.300q\nwant %.300q", args, got, want)
	}
	return string(want)
}

// realReply sends a command to the real server, and returns its reply.
func (w *twin) realReply(args ...string) string {
	w.t.Helper()
	_, _ = w.pair.real.Write(encode(args))
	answer, err := readRaw(w.fromReal)
	if err != nil {
		w.t.Fatalf("%q: %v", args, err)
	}
	return string(answer)
}

// next returns what both servers send without being asked.
func (w *twin) next() (got, want string) {
	w.t.Helper()
	_ = w.pair.real.SetReadDeadline(time.Now().Add(time.Minute))
	_ = w.pair.sim.SetReadDeadline(time.Now().Add(time.Minute))
	b, err := readRaw(w.fromReal)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := readRaw(w.fromSim)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(c), string(b)
}

// alone sends a command to the real server.
func (w *twin) alone(args ...string) string {
	w.t.Helper()
	answer := w.realReply(args...)
	if answer[0] == '-' {
		w.t.Fatalf("%q: %q", args, answer)
	}
	return answer
}

const touchScript = "local n = 0 for i = 1, #KEYS do if redis.call('GET', KEYS[i]) then n = n + 1 end redis.call('SET', KEYS[i], i) end return n"

// TestClusterRefusesAsRedis sends random commands to the nodes of a Cluster, before, while
// and after a slot moves. Redirections and errors are those of a real Cluster.
func TestClusterRefusesAsRedis(t *testing.T) {
	r := storekit.Seeded(t)
	servers := redistest.StartCluster(t, 3)
	c := NewCluster(3, false, func(i int) Options { return Options{Address: servers[i].Addr} })
	var nodes []*twin
	for i, s := range c.Nodes() {
		nodes = append(nodes, newTwin(t, servers[i], s))
	}
	replies := make(map[string]int)
	trace := func(n int) {
		for range n {
			if t.Failed() {
				t.FailNow()
			}
			for _, answer := range nodes[r.IntN(3)].random(r) {
				word, _, _ := strings.Cut(strings.TrimSpace(answer), " ")
				if word[0] == '-' {
					replies[word]++
				}
			}
		}
	}
	trace(500)
	slot := Slot("k0{a}")
	from := slices.Index(c.Nodes(), c.Owner(slot))
	to := (from + 1) % 3
	var ids []string
	for _, n := range nodes {
		ids = append(ids, strings.Split(n.alone("CLUSTER", "MYID"), "\r\n")[1])
	}
	number := fmt.Sprint(slot)
	nodes[to].alone("CLUSTER", "SETSLOT", number, "IMPORTING", ids[from])
	nodes[from].alone("CLUSTER", "SETSLOT", number, "MIGRATING", ids[to])
	c.BeginMove(slot, c.Nodes()[to])
	trace(500)
	for range 3 { // keys lie at both nodes
		keys := c.Nodes()[from].Keys()
		for _, k := range slices.Sorted(mapsKeys(keys)) {
			if Slot(k) == slot {
				c.StepMove(slot, 1)
				nodes[from].alone("MIGRATE", "127.0.0.1", fmt.Sprint(servers[to].Port), k, "0", "5000", "REPLACE")
				break
			}
		}
		trace(300)
	}
	for _, k := range slices.Sorted(mapsKeys(c.Nodes()[from].Keys())) {
		if Slot(k) == slot {
			nodes[from].alone("MIGRATE", "127.0.0.1", fmt.Sprint(servers[to].Port), k, "0", "5000", "REPLACE")
		}
	}
	c.EndMove(slot)
	for _, i := range []int{to, from, 3 - to - from} {
		nodes[i].alone("CLUSTER", "SETSLOT", number, "NODE", ids[to])
	}
	trace(500)
	for _, word := range []string{"-MOVED", "-ASK", "-TRYAGAIN", "-CROSSSLOT", "-NOSCRIPT", "-ERR"} {
		if replies[word] == 0 {
			t.Errorf("no %s", word)
		}
	}
	t.Log(replies)
}

func mapsKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// random sends a random command, perhaps behind ASKING, and compares the replies.
func (w *twin) random(r *rand.Rand) (answers []string) {
	tag := []string{"a", "b", "c", "d"}[r.IntN(2)*r.IntN(4)]
	key := func() string {
		if r.IntN(12) == 0 {
			tag = []string{"a", "b", "c"}[r.IntN(3)]
		}
		return fmt.Sprintf("k%d{%s}", r.IntN(4), tag)
	}
	if r.IntN(4) == 0 {
		answers = append(answers, w.same("ASKING"))
	}
	some := []string{}
	for range 1 + r.IntN(3) {
		some = append(some, key())
	}
	count := fmt.Sprint(len(some))
	switch r.IntN(9) {
	case 0, 1:
		return append(answers, w.same("GET", key()))
	case 2, 3:
		return append(answers, w.same("SET", key(), fmt.Sprint(r.IntN(5))))
	case 4:
		return append(answers, w.same(append([]string{"DEL"}, some...)...))
	case 5:
		return append(answers, w.same(append([]string{"EVALSHA", sha1hex("unknown"), count}, some...)...))
	case 6:
		return append(answers, w.same("EVAL", "return redis.call('GET', 'other{x}')", "1", key()))
	case 7:
		return append(answers, w.same("PTTL", key()))
	}
	return append(answers, w.same(append([]string{"EVAL", touchScript, count}, some...)...))
}

// TestSentinelRepliesAsRedis asks a Sentinel as go-redis does, and for what it does not know.
func TestSentinelRepliesAsRedis(t *testing.T) {
	servers := redistest.StartSentinel(t)
	at := func(s *redistest.Server) Options { return Options{Address: s.Addr} }
	n := NewSentinels(redistest.SentinelMaster, New(at(servers.Master)), New(at(servers.Replica)), 0,
		at(servers.Sentinels[0]), at(servers.Sentinels[1]), at(servers.Sentinels[2]))
	w := newTwin(t, servers.Sentinels[0], n.Servers()[0])
	for _, line := range []string{
		"PING", "SENTINEL get-master-addr-by-name main", "SENTINEL GET-MASTER-ADDR-BY-NAME other", "SENTINEL get-master-addr-by-name",
		"SENTINEL sentinels other", "SENTINEL replicas other", "SENTINEL master other", "SENTINEL nope", "SENTINEL", "GET a", "SET a b",
		"EVALSHA x 0", "SENTINEL sentinels", "SELECT 0",
	} {
		w.same(strings.Split(line, " ")...)
	}
	for _, of := range []string{"sentinels", "replicas"} { // others tell of its links, and when they were used
		got, want := w.ask("SENTINEL", of, "main")
		for _, field := range []string{"port", "ip"} {
			if g, w := valuesOf(got, field), valuesOf(want, field); !slices.Equal(g, w) {
				t.Errorf("%s: %s is %v, want %v", of, field, g, w)
			}
		}
	}
}

// valuesOf returns the values of a field in a reply, in order.
func valuesOf(answer []byte, field string) (all []string) {
	lines := strings.Split(string(answer), "\r\n")
	for i, line := range lines {
		if line == field && i+2 < len(lines) {
			all = append(all, lines[i+2])
		}
	}
	slices.Sort(all)
	return all
}
