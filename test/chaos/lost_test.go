package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// The rows of lost memory have keys under each algorithm, which differ in what
// they were used for before Redis lost them.
const (
	lostLimit   = 300 // a multiple of the number of instances, for their shares
	lostWindow  = time.Hour
	lostClients = 24
	lostMost    = 1.10 // of the limit, in one window, whatever Redis loses in it
	lostLeast   = 0.95
)

var lostAlgorithms = []string{"fixed_window", "sliding_window", "sliding_log", "gcra"}

// lostKey is a key of every algorithm's zone.
type lostKey struct {
	name   string
	offers [3]int // requests before the first loss, after it, and after the second
}

// A key offered all of its limit is offered half as much again.
var lostKeys = []lostKey{
	{"full", [3]int{lostLimit * 3 / 2, lostLimit * 3 / 2, lostLimit * 3 / 2}},
	{"half", [3]int{lostLimit / 2, lostLimit * 3 / 2, lostLimit * 3 / 2}},
	{"late", [3]int{0, lostLimit / 2, lostLimit * 3 / 2}},
}

// memoryScene is instances with one zone for each algorithm.
type memoryScene struct {
	t      *testing.T
	caddys []*harness.Caddy
	client *http.Client
	begun  time.Time
	stage  int

	mu    sync.Mutex
	shots []harness.Shot
}

// beginMemory starts the instances.
func beginMemory(t *testing.T, addr string, options ...string) *memoryScene {
	t.Helper()
	return beginMemoryOf(t, instances, addr, options...)
}

// beginMemoryOf starts n instances.
func beginMemoryOf(t *testing.T, n int, addr string, options ...string) *memoryScene {
	t.Helper()
	store := addr + " {\n\t\t\t" + strings.Join(append(options, fmt.Sprint("timeout ", patient)), "\n\t\t\t") + "\n\t\t}"
	var site strings.Builder
	for _, a := range lostAlgorithms {
		fmt.Fprintf(&site, "\trate_limit /%[1]s {\n\t\tzone %[1]s {\n\t\t\tkey {query.k}\n\t\t\trule %[2]d/1h %[1]s\n\t\t}\n\t}\n", a, lostLimit)
	}
	s := &memoryScene{t: t, client: harness.Client(lostClients)}
	t.Cleanup(s.client.CloseIdleConnections)
	s.caddys = fleet(t, n, harness.Config{Global: global(store), Site: site.String() + "\trespond ok"})
	waitStores(t, s.caddys, true)
	s.begun = time.Now()
	return s
}

func (s *memoryScene) url(instance int, algorithm, key string) string {
	return fmt.Sprintf("%s/%s?k=%s", s.caddys[instance].URL, algorithm, key)
}

// offered returns the requests of the next stage in random order, for each key from
// all instances equally, and those that may follow them: of keys that are to be used
// up in this stage.
func (s *memoryScene) offered() (once, again []string) {
	for _, k := range lostKeys {
		n := k.offers[s.stage]
		for _, a := range lostAlgorithms {
			for i := range n {
				once = append(once, s.url(i%len(s.caddys), a, k.name))
			}
			if n > lostLimit {
				for i := range s.caddys {
					again = append(again, s.url(i, a, k.name))
				}
			}
		}
	}
	s.stage++
	shuffle := func(all []string) {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	shuffle(once)
	shuffle(again)
	return once, again
}

// drive runs the load of one stage through a fault. It ends when all requests were
// sent, at least the limit of each key that is to be used up since the fault, and no
// instance denies by what it knew before the fault: for longer than what Redis
// said denies without a call.
func (s *memoryScene) drive(fault func()) {
	s.t.Helper()
	once, again := s.offered()
	var (
		wg   sync.WaitGroup
		sent atomic.Int64
		over atomic.Bool
	)
	for range lostClients {
		wg.Go(func() {
			var shots []harness.Shot
			for i := int(sent.Add(1)) - 1; !over.Load(); i = int(sent.Add(1)) - 1 {
				url := again[i%len(again)]
				if i < len(once) {
					url = once[i]
				}
				shots = append(shots, harness.Shoot(s.client, url))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.shots = append(s.shots, shots...)
		})
	}
	defer wg.Wait()
	defer over.Store(true)
	if fault != nil {
		fault()
	}
	ended, least := time.Now(), int(sent.Load())+len(again)*lostLimit/len(s.caddys)
	harness.Until(s.t, 2*time.Minute, "the requests of the stage are sent", func() bool {
		return int(sent.Load()) >= max(len(once), least) && time.Since(ended) > 2*time.Second
	})
}

// admitted returns how often a key's limit was admitted by requests sent after a time,
// without what a meter has drained since its first request.
func (s *memoryScene) admitted(algorithm, key string, after time.Time) float64 {
	n, path := 0, fmt.Sprintf("/%s?k=%s", algorithm, key)
	for _, shot := range s.shots {
		if shot.Status == http.StatusOK && pathOf(shot) == path && shot.Sent.After(after) {
			n++
		}
	}
	if algorithm == "gcra" {
		n -= int(time.Since(s.begun) * lostLimit / lostWindow)
	}
	return float64(n) / lostLimit
}

// check checks what was admitted of every key since the begin.
func (s *memoryScene) check(out *result) {
	s.t.Helper()
	s.checkUpTo(lostMost, out)
}

// checkUpTo is check with what may be admitted at most, of the limit.
func (s *memoryScene) checkUpTo(most float64, out *result) {
	s.t.Helper()
	harness.OnlyStatuses(s.t, s.shots, http.StatusOK, http.StatusTooManyRequests)
	out.report("%d requests", len(s.shots))
	for _, a := range lostAlgorithms {
		var all []string
		for _, k := range lostKeys {
			n := s.admitted(a, k.name, time.Time{})
			all = append(all, fmt.Sprintf("%.2f", n))
			s.want(a, k.name, n, most)
		}
		out.report("%s %s", a, strings.Join(all, "/"))
	}
}

// want checks that a limit was admitted once: neither was it forgotten, nor was a
// key put back with more than was used of it.
func (s *memoryScene) want(algorithm, key string, n, most float64) {
	s.t.Helper()
	if n > most || n < lostLeast {
		s.t.Errorf("%s, key %s: %.2f of the limit admitted, want %.2f to %.2f", algorithm, key, n, lostLeast, most)
	}
}
