package chaos

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const (
	capacity = 6 // of each key, a multiple of the number of instances

	// wholeAgain is the time in which every permit is free after all requests have
	// ended. It is less than the 30 s after which a permit left behind expires.
	wholeAgain = 15 * time.Second
	// permitLapse is the time after which the permits of a killed instance expire.
	permitLapse = 30 * time.Second
)

// permitSite has zones whose requests hold permits: in_flight and count_status.
var permitSite = fmt.Sprintf(`	rate_limit /in_flight {
		zone in_flight {
			key {query.k}
			rule 1000000/1h
			in_flight %[1]d
		}
	}
	rate_limit /count_status {
		zone count_status {
			key {query.k}
			rule %[1]d/1h gcra
			count_status 401
		}
	}
	rate_limit /local {
		zone local {
			key {query.k}
			rule 1000000/1h
			in_flight %[1]d
			store local
		}
	}
`, capacity)

// siege keeps trying to open more requests of some keys than their permits allow.
type siege struct {
	*holders
	keys  []string
	tries []*atomic.Int64 // of one key through one instance
	over  atomic.Bool
	wg    sync.WaitGroup

	peaks  map[string][]string // by zone, the most at once in each stage
	bounds map[string]int      // by zone
}

// besiege takes all permits of the shared keys, of one key by all instances and of the
// other by the first, and then keeps trying to open more.
func besiege(t *testing.T, most int, addr string, options ...string) *siege {
	t.Helper()
	store := addr + " {\n\t\t\t" + strings.Join(append(options, fmt.Sprint("timeout ", patient)), "\n\t\t\t") + "\n\t\t}"
	s := &siege{holders: hold(t, instances, store, permitSite), peaks: make(map[string][]string)}
	s.bounds = map[string]int{"/in_flight": most, "/count_status": most}
	for zone := range s.bounds {
		for i := range capacity {
			if !s.open(i%instances, zone+" even") || !s.open(0, zone+" one") {
				t.Fatalf("%s: permit %d of %d was denied", zone, i+1, capacity)
			}
		}
		s.attack(zone+" even", 0, 1, 2)
		s.attack(zone+" one", 0, 1, 2)
	}
	t.Cleanup(s.lift)
	s.stage("shared")
	return s
}

// attack keeps trying to open requests of a key through some instances.
func (s *siege) attack(key string, through ...int) {
	s.keys = append(s.keys, key)
	for _, i := range through {
		tries := new(atomic.Int64)
		s.tries = append(s.tries, tries)
		s.wg.Go(func() {
			for !s.over.Load() {
				if !s.open(i, key) || s.up.holding(key) > 10*capacity {
					time.Sleep(20 * time.Millisecond)
				}
				tries.Add(1)
			}
		})
	}
}

// stage ends a stage: it waits until every instance was tried often, and notes how many
// requests of each key were open at once.
func (s *siege) stage(name string) {
	s.t.Helper()
	const often = 60
	for _, n := range s.tries {
		n.Store(0)
	}
	harness.Until(s.t, time.Minute, fmt.Sprintf("every instance is tried %d times", often), func() bool {
		return !slices.ContainsFunc(s.tries, func(n *atomic.Int64) bool { return n.Load() < often })
	})
	peaks := make(map[string]int)
	for _, key := range s.keys {
		zone, _, _ := strings.Cut(key, " ")
		n := s.up.peak(key)
		peaks[zone] = max(peaks[zone], n)
		if most := s.bound(zone); n > most {
			s.t.Errorf("%s, %s: %d requests open at once, want at most %d", name, key, n, most)
		}
	}
	for zone, n := range peaks {
		s.peaks[zone] = append(s.peaks[zone], fmt.Sprintf("%s %d", name, n))
	}
}

// bound returns how many requests of a key of a zone may be open at once: twice the
// capacity if an instance has decided without Redis, for which a loaded machine is
// reason enough.
func (s *siege) bound(zone string) int {
	s.t.Helper()
	if s.bounds[zone] == capacity && s.fallbacks(zone) > 0 {
		return 2 * capacity
	}
	return s.bounds[zone]
}

// fallbacks returns how often the living instances have decided without Redis about a
// zone, given by its path.
func (s *siege) fallbacks(zone string) (n float64) {
	s.t.Helper()
	for i, c := range s.caddys {
		if !s.killed[i] {
			of, _ := c.Metric(s.t, "caddy_rate_limit_fallback_total", fmt.Sprintf("zone=%q", zone[1:]))
			n += of
		}
	}
	return n
}

// lift ends the attempts.
func (s *siege) lift() {
	s.over.Store(true)
	s.wg.Wait()
}

// end ends all requests and checks that no permit is left behind, and that responses
// to be counted are.
func (s *siege) end(out *result, within time.Duration) {
	s.t.Helper()
	s.lift()
	for _, zone := range []string{"/in_flight", "/count_status", "/local"} {
		if peaks := s.peaks[zone]; peaks != nil {
			out.report("%s %s", zone[1:], strings.Join(peaks, ", "))
		}
	}
	s.up.answer(http.StatusOK)
	s.sent.Wait()
	ended := time.Now()
	for _, key := range s.keys {
		harness.Until(s.t, time.Minute, key+": all permits are free", func() bool { return s.fill(key) })
		if took := time.Since(ended); took > within {
			s.t.Errorf("%s: permits left behind for %v, want at most %v", key, took, within)
		}
	}
	out.report("all permits free %.1f s after the last response", time.Since(ended).Seconds())
	s.up.answer(http.StatusOK)
	s.sent.Wait()
	for _, key := range s.keys {
		if strings.HasPrefix(key, "/count_status") {
			s.counted(key)
		}
	}
	s.holders.check(out)
}

// counted checks that responses to be counted take the place of their permits.
func (s *siege) counted(key string) {
	s.t.Helper()
	harness.Until(s.t, wholeAgain, key+": all permits are free", func() bool { return s.fill(key) })
	s.up.answer(http.StatusUnauthorized)
	s.sent.Wait()
	s.full(key, "after all of its limit was counted")
}

// fill takes all permits of a key and reports whether that worked, and no more could
// be opened; if not, it ends all requests.
func (s *siege) fill(key string) bool {
	s.t.Helper()
	through := s.through(key)
	for n := range capacity {
		if !s.open(through[n%len(through)], key) {
			return s.refill()
		}
	}
	return s.full(key, "after all of its permits were free and taken") || s.refill()
}

func (s *siege) refill() bool {
	s.up.answer(http.StatusOK)
	s.sent.Wait()
	time.Sleep(50 * time.Millisecond)
	return false
}

// full reports whether every instance denies a request for a key. It is an error if one
// does not, unless it decided without Redis.
func (s *siege) full(key, when string) bool {
	s.t.Helper()
	zone, _, _ := strings.Cut(key, " ")
	before, admitted := s.fallbacks(zone), 0
	for _, i := range s.through(key) {
		if s.open(i, key) {
			admitted++
		}
	}
	if admitted > 0 && s.fallbacks(zone) == before {
		s.t.Errorf("%s: %d more admitted %s", key, admitted, when)
	}
	return admitted == 0
}

// through returns the instances that requests for a key go through.
func (s *siege) through(key string) (all []int) {
	for i := range instances {
		if zone, own, _ := strings.Cut(key, " "); !s.killed[i] && (zone != "/local" || own == fmt.Sprint(i)) {
			all = append(all, i)
		}
	}
	return all
}
