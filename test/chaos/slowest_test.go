package chaos

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/usage"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const (
	manyPermits = 10_000
	logLimit    = 1_000_000 // stamps
	logCost     = 1000      // of a request that fills the log
	slowCall    = time.Millisecond

	// certainlySlow is a duration of a call that is not repeated: no loaded machine
	// explains it.
	certainlySlow = 100 * time.Millisecond
	renewPeriod   = 10 * time.Second // of permits, at most

	// controlTime is the duration of the calls that show what the machine adds.
	controlTime = 50 * time.Microsecond

	// stuckAfter is the time after which a Redis that does not reply is given up.
	stuckAfter = 30 * time.Second
)

// slowSite has zones with many permits of one key, with many keys of one permit each,
// and with a large log. Requests for /now are not held.
var slowSite = fmt.Sprintf(`	@one path /one /now
	rate_limit @one {
		zone one {
			key {query.k}
			in_flight %d
		}
	}
	rate_limit /each {
		zone each {
			key {query.k}
			in_flight 1
		}
	}
	rate_limit /log {
		zone log {
			key {query.k}
			rule %d/1h sliding_log
			cost {query.n}
		}
	}
	respond /now ok
	respond /log ok
`, manyPermits+1, logLimit)

// timed is what a phase took Redis.
type timed struct {
	phase            string
	calls            int64
	mean             time.Duration // of a call
	slowest, control time.Duration // one call, and what the machine added to a call of known duration
}

// excess is the duration of the slowest call without what the machine added.
func (m timed) excess() time.Duration { return max(0, m.slowest-m.control) }

// slowScene is one instance, which holds everything, with a Redis that logs slow calls.
type slowScene struct {
	*holders
	srv   *redistest.Server
	proxy *proxy // between the instance and Redis
	redis *redis.Client
	best  []timed // by phase, of all rounds
	stuck bool    // Redis did not reply any more
}

// slowestCalls measures the slowest script call of each phase of permits and of a
// log. A call may be slow because the machine did something else, so a round with slow
// calls is repeated: what is due to the script is slow again.
func slowestCalls(t *testing.T, out *result) {
	s := &slowScene{srv: redistest.Start(t, "--slowlog-log-slower-than", "100", "--slowlog-max-len", "100000",
		"--lua-time-limit", "60000")}
	// A long timeout keeps slow calls from being replaced by decisions without Redis.
	s.proxy = startProxy(t, s.srv.Addr)
	s.holders = hold(t, 1, s.proxy.Addr+" {\n\t\t\ttimeout 2s\n\t\t}", slowSite)
	s.redis = redis.NewClient(&redis.Options{Addr: s.srv.Addr, Protocol: 2, DisableIdentity: true, DialTimeout: stuckAfter, ReadTimeout: stuckAfter, MaxRetries: -1})
	t.Cleanup(func() { _ = s.redis.Close() })
	defer s.print()
	for round := 0; round < 3 && !s.stuck; round++ {
		s.permits("one key", func(int) string { return "/one key" })
		s.permits(fmt.Sprintf("%d keys", manyPermits), func(j int) string { return fmt.Sprintf("/each k%d", j) })
		s.log(round)
		if worst := s.worst(); worst <= slowCall || worst > certainlySlow {
			break
		}
	}
	for _, m := range s.best {
		if m.excess() > slowCall {
			out.late(t, "%s: a call of %v, %v more than what the machine added to another, want at most %v", m.phase, m.slowest, m.excess(), slowCall)
		}
	}
	free, held := s.phaseOf("decide, none held"), s.phaseOf(fmt.Sprintf("decide, %d held", manyPermits))
	out.report("slowest call %.1f ms, a decision's calls %.1f us each with none held, %.1f us with %d", us(s.worst())/1000, us(free.mean), us(held.mean), manyPermits)
	if held.mean > 3*free.mean {
		out.late(t, "a decision's calls take Redis %v each with %d permits held, %v with none", held.mean, manyPermits, free.mean)
	}
	s.check(out)
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// print prints what every phase took Redis.
func (s *slowScene) print() {
	fmt.Println("\n| phase                     |  calls | us a call | slowest us | beside us |")
	for _, m := range s.best {
		fmt.Printf("| %-25s | %6d | %9.1f | %10.0f | %9.0f |\n", m.phase, m.calls, us(m.mean), us(m.slowest), us(m.control))
	}
}

func (s *slowScene) worst() (worst time.Duration) {
	for _, m := range s.best {
		worst = max(worst, m.excess())
	}
	return worst
}

func (s *slowScene) phaseOf(name string) (m timed) {
	if i := slices.IndexFunc(s.best, func(m timed) bool { return m.phase == name }); i >= 0 {
		m = s.best[i]
	}
	return m
}

// permits takes many permits, decides, renews and gives back.
func (s *slowScene) permits(of string, key func(j int) string) {
	s.phase("take, "+of, func() {
		var wg sync.WaitGroup
		for w := range 64 {
			wg.Go(func() {
				for j := w; j < manyPermits; j += 64 {
					s.open(0, key(j))
				}
			})
		}
		wg.Wait()
	})
	if of == "one key" {
		s.phase("decide, none held", func() { s.decide("/now?k=other") })
		s.phase(fmt.Sprintf("decide, %d held", manyPermits), func() { s.decide("/now?k=key") })
	}
	s.phase("renew, "+of, func() { time.Sleep(renewPeriod + 2*time.Second) })
	s.phase("give back, "+of, func() {
		s.up.answer(http.StatusOK)
		s.sent.Wait()
		time.Sleep(3 * time.Second) // releases that failed are sent again every second
	})
}

// log fills a log, decides, and pays a debt after an outage that fills it up.
func (s *slowScene) log(round int) {
	s.t.Helper()
	fill := fmt.Sprintf("/log?k=k%d&n=%d", round, logCost)
	one := fmt.Sprintf("/log?k=k%d&n=1", round)
	const alone = logLimit * 3 / 10 / logCost
	s.phase("fill, sliding_log", func() { s.send(logLimit/logCost-alone, fill) })
	s.phase("decide, sliding_log", func() { s.decide(one) })
	s.proxy.swallow.Store(true)
	waitStores(s.t, s.caddys, false)
	s.send(alone, fill)
	s.phase("debt, sliding_log", func() {
		s.proxy.swallow.Store(false)
		// What was decided in Redis before took room from the last that were admitted alone.
		for end := time.Now().Add(stuckAfter); s.left(round) >= 2*logCost; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				s.t.Errorf("the debt of a log is not charged after %v", stuckAfter)
				return
			}
		}
	})
	s.phase("decide, full sliding_log", func() {
		for n := logCost / 2; n > 0; n-- { // less each time: a higher cost would be denied without a call
			s.send(1, fmt.Sprintf("/log?k=k%d&n=%d", round, n))
		}
	})
}

// left returns what Redis says is left of a log.
func (s *slowScene) left(round int) int {
	s.t.Helper()
	a := harness.Do(s.t, http.MethodGet, fmt.Sprintf("%s/rate_limit/zones/log/key?part=k%d", s.caddys[0].Admin, round), "")
	if !strings.Contains(a.Body, `"shared"`) {
		return logLimit
	}
	return remaining(s.t, a.Body)
}

// decide sends requests one after the other, so that none shares a call.
func (s *slowScene) decide(url string) {
	waitStores(s.t, s.caddys, true) // a slow call may have been taken for an outage
	s.send(500, url)
}

func (s *slowScene) send(n int, url string) {
	for range n {
		harness.Shoot(s.client, s.caddys[0].URL+url)
	}
}

// phase measures what do takes Redis.
func (s *slowScene) phase(name string, do func()) {
	s.t.Helper()
	if s.stuck {
		return
	}
	m := timed{phase: name}
	before, err := s.begin()
	if err == nil {
		end := s.control()
		do()
		end()
		err = s.measure(&m, before)
	}
	if err != nil {
		s.t.Errorf("%s: Redis does not reply, for up to %v: %v", name, stuckAfter, err)
		s.stuck, m.slowest = true, stuckAfter
	}
	s.keep(m)
}

func (s *slowScene) begin() (usage.Redis, error) {
	if err := s.redis.Do(context.Background(), "slowlog", "reset").Err(); err != nil {
		return usage.Redis{}, err
	}
	return usage.ReadRedis(context.Background(), s.redis, s.srv.Pid())
}

// measure reads what Redis did since before.
func (s *slowScene) measure(m *timed, before usage.Redis) error {
	after, err := usage.ReadRedis(context.Background(), s.redis, s.srv.Pid())
	if err != nil {
		return err
	}
	used := after.Since(before)
	m.calls, m.mean = used.Calls, used.Inside/time.Duration(max(1, used.Calls))
	slow, err := s.redis.SlowLogGet(context.Background(), -1).Result()
	for _, call := range slow {
		switch strings.ToLower(call.Args[0]) {
		case "evalsha":
			m.slowest = max(m.slowest, call.Duration)
		case "eval":
			m.control = max(m.control, call.Duration-controlTime)
		}
	}
	return err
}

// keep keeps the best of all rounds of a phase.
func (s *slowScene) keep(m timed) {
	i := slices.IndexFunc(s.best, func(o timed) bool { return o.phase == m.phase })
	if i < 0 {
		s.best = append(s.best, m)
	} else if m.excess() < s.best[i].excess() {
		s.best[i] = m
	}
}

// control calls a script of known duration again and again, until the returned
// function is called.
func (s *slowScene) control() (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				s.redis.Eval(context.Background(), busy, nil, controlTime.Microseconds())
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}
