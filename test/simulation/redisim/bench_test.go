package redisim

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// recorder serves a simulated Redis, and keeps the last call of the script.
type recorder struct {
	s  *Server
	mu sync.Mutex
	// last are the arguments of the last EVALSHA.
	last []string
}

func (rec *recorder) serve(c net.Conn) {
	near, far := net.Pipe()
	go rec.s.Serve(far)
	defer near.Close()
	defer c.Close()
	from := bufio.NewReader(near)
	for in := bufio.NewReaderSize(c, maxInline); ; {
		args, err := readCommand(in)
		if err != nil {
			return
		}
		if strings.EqualFold(args[0], "evalsha") {
			rec.mu.Lock()
			rec.last = args
			rec.mu.Unlock()
		}
		_, _ = near.Write(encode(args))
		answer, err := readRaw(from)
		if err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// record returns the call by which the plugin decides a check, the second of the same key.
func (rec *recorder) record(b *testing.B, check *stores.Check) []string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go rec.serve(c)
		}
	}()
	s := redis.New(redis.Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: redis.ConnOptions{
		Addresses: []string{l.Addr().String()}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: time.Second,
	}}, quiet{})
	s.Start(0)
	time.Sleep(50 * time.Millisecond) // after the first heartbeat
	for range 2 {
		s.Decide(context.Background(), check)
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	_ = s.Destruct()
	call := append([]string(nil), rec.last...)
	keys, _ := scriptKeys(call)
	call[3+len(keys)] = doubles(1, 1e17) // no deadline
	return call
}

// BenchmarkDecide measures calls as the plugin makes them, without connections.
func BenchmarkDecide(b *testing.B) {
	limit := int64(1_000_000_000)
	rule := func(alg algorithms.Algorithm, limit int64) storekit.RuleSpec {
		return storekit.RuleSpec{Alg: alg, Spec: algorithms.Spec{Limit: limit, Window: storekit.Hour, Cost: 1}}
	}
	gcra, fixed, sliding := rule(&algorithms.GCRA{}, limit), rule(&algorithms.FixedWindow{}, limit), rule(&algorithms.SlidingWindow{Buckets: 10}, limit)
	log := rule(&algorithms.SlidingLog{}, 100)
	one := func(inFlight int64, specs ...storekit.RuleSpec) *stores.Check {
		return storekit.CheckOf(1, kit.NewTestCounter(b, "z", inFlight, false, nil, specs...))
	}
	for name, check := range map[string]*stores.Check{
		"gcra": one(0, gcra), "fixed_window": one(0, fixed), "sliding_window": one(0, sliding), "sliding_log": one(0, log),
		"three_rules": one(0, gcra, fixed, sliding), "in_flight": one(1<<40, gcra),
	} {
		b.Run(name, func(b *testing.B) {
			s := New(Options{})
			args := (&recorder{s: s}).record(b, check)
			c := newClient(s, nil, 1, 0)
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				out, _ = s.execute(c, args, out[:0])
			}
			if out[0] != '$' {
				b.Fatalf("%q", out)
			}
		})
	}
}
