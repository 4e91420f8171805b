package redis

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestUnknownEndpoints decides in Clusters that tell no host of a node, as null or as a question mark, and moves a
// slot, of which they tell by a redirection.
func TestUnknownEndpoints(t *testing.T) {
	for _, kind := range []string{"unknown-endpoint", "hostname"} { // no node has a hostname
		for _, host := range []string{"127.0.0.1", "localhost"} {
			t.Run(kind+" "+host, func(t *testing.T) {
				t.Parallel()
				nodes := redistest.StartCluster(t, 3, "--cluster-preferred-endpoint-type", kind)
				seed := net.JoinHostPort(host, strconv.Itoa(nodes[0].Port))
				s := New(Options{Name: "cluster", Clock: func() int64 { return storekit.Hour }, ConnOptions: ConnOptions{
					Addresses: []string{seed}, Cluster: true, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second,
				}}, strictObserver{t})
				s.Start(0)
				t.Cleanup(func() { _ = s.Destruct() })
				c := counterOfManyKeys(t)
				for n := range uint64(60) {
					if m := s.mode(t, c, n); m != stores.ModeShared {
						t.Fatalf("key %d: mode %v", n, m)
					}
				}
				if n := len(s.conn.nodes.all()); n != 3 {
					t.Errorf("%d masters, want 3", n)
				}
				ctx, k, from := context.Background(), uint64(1000), 0
				slot := nodes[0].Client().ClusterKeySlot(ctx, "{"+testKey(k).String()+"}").Val()
				for slot >= 16384*int64(from+1)/3 {
					from++
				}
				to := nodes[(from+1)%3]
				id := to.Client().Do(ctx, "cluster", "myid").Val()
				if err := to.Client().Do(ctx, "cluster", "bumpepoch").Err(); err != nil { // so that the others accept it
					t.Fatal(err)
				}
				for _, n := range append([]*redistest.Server{to}, nodes...) {
					if err := n.Client().Do(ctx, "cluster", "setslot", slot, "node", id).Err(); err != nil {
						t.Fatal(err)
					}
				}
				if m := s.mode(t, c, k); m != stores.ModeShared {
					t.Errorf("a slot that has moved: mode %v", m)
				}
			})
		}
	}
}

// TestUnreachableEndpointsAreExplained has a Cluster tell an address at which no node is.
func TestUnreachableEndpointsAreExplained(t *testing.T) {
	nowhere := redistest.FreePort(t)
	nodes := redistest.StartCluster(t, 1, "--cluster-announce-port", strconv.Itoa(nowhere))
	events := new(downEvents)
	s := New(Options{Name: "cluster", Clock: func() int64 { return storekit.Hour }, ConnOptions: ConnOptions{
		Addresses: []string{nodes[0].Addr}, Cluster: true, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second,
	}}, events)
	s.Start(0)
	t.Cleanup(func() { _ = s.Destruct() })
	c := counterOfManyKeys(t)
	waitFor(t, "the store is away", func() bool { s.mode(t, c, newKey()); return !s.Status().Up })
	if advice, _, _, cause := events.advice(); !strings.Contains(advice, "cluster-announce-ip") {
		t.Errorf("%v: advice %q", cause, advice)
	}
}

// TestRedirections completes redirections that have no host.
func TestRedirections(t *testing.T) {
	for text, want := range map[string]string{
		"MOVED 3999 :6381":          "MOVED 3999 a.example:6381",
		"MOVED 3999 ?:6381":         "MOVED 3999 a.example:6381",
		"ASK 3999 :6381":            "ASK 3999 a.example:6381",
		"MOVED 3999 10.0.0.1:6381":  "MOVED 3999 10.0.0.1:6381",
		"MOVED 3999 [::1]:6381":     "MOVED 3999 [::1]:6381",
		"MOVED 3999 2001:db8::1:63": "MOVED 3999 2001:db8::1:63",
		"MOVED":                     "MOVED",
		"ERR ASK 3999 ?:6381":       "ERR ASK 3999 ?:6381",
	} {
		cmd := goredis.NewCmd(context.Background())
		if got := newEndpointHook("a.example:6379").redirect(cmd, redirection(text)); got.Error() != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
