package harness

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// Shot is one request of a load and its result. It was charged at an instant between
// Sent and Got.
type Shot struct {
	URL        string    // of the instance
	Sent, Got  time.Time // before the request, after the response
	Status     int       // 0: no response
	RetryAfter string    // header as received
	Policy     string    // RateLimit-Policy, which shows the enforced limit
	Err        error     // why there was no response
}

// Took returns the latency of the response.
func (s Shot) Took() time.Duration { return s.Got.Sub(s.Sent) }

// Shoot sends one GET.
func Shoot(client *http.Client, url string) Shot {
	s := Shot{URL: url, Sent: time.Now()}
	resp, err := client.Get(url)
	if err != nil {
		s.Got, s.Err = time.Now(), err
		return s
	}
	_, s.Err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	s.Got = time.Now()
	s.Status, s.RetryAfter, s.Policy = resp.StatusCode, resp.Header.Get("Retry-After"), resp.Header.Get("RateLimit-Policy")
	return s
}

// During returns a condition that is true for the duration d from now.
func During(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().Before(end) }
}

// Saturate runs clients that each send requests sequentially, to the urls in turn, with a
// pause after each response, as long as more returns true.
func Saturate(clients int, pause time.Duration, more func() bool, urls ...string) []Shot {
	client := Client(clients)
	defer client.CloseIdleConnections()
	return gather(clients, func(i int, add func(Shot)) {
		for more() {
			add(Shoot(client, urls[i%len(urls)]))
			i++
			time.Sleep(pause)
		}
	})
}

// Pace sends rate requests per second, to the urls in turn, whatever the latency of
// the responses, as long as more returns true. On a machine that is too slow for that it
// sends fewer: no more than those of a second wait for their responses.
func Pace(rate int, more func() bool, urls ...string) []Shot {
	var shots Record
	shots.Pace(rate, more, urls...)
	return shots.All()
}

// A Record has the shots of a load that goes on.
type Record struct {
	mu    sync.Mutex
	shots []Shot
}

// All returns the shots that are answered so far, ordered by Sent.
func (r *Record) All() []Shot {
	r.mu.Lock()
	shots := slices.Clone(r.shots)
	r.mu.Unlock()
	slices.SortFunc(shots, bySent)
	return shots
}

func (r *Record) add(s Shot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shots = append(r.shots, s)
}

// Pace is like the function of that name, and records each shot when it is answered.
func (r *Record) Pace(rate int, more func() bool, urls ...string) {
	client := Client(rate)
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	start, gap, waiting := time.Now(), time.Second/time.Duration(rate), make(chan struct{}, rate)
	for i := 0; more(); i++ {
		time.Sleep(time.Until(start.Add(time.Duration(i) * gap)))
		select {
		case waiting <- struct{}{}:
		default:
			continue
		}
		wg.Go(func() {
			defer func() { <-waiting }()
			r.add(Shoot(client, urls[i%len(urls)]))
		})
	}
	wg.Wait()
}

// AtOnce sends n concurrent requests, to the urls in turn.
func AtOnce(n int, urls ...string) []Shot {
	client := Client(n)
	defer client.CloseIdleConnections()
	gun := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { close(gun) })
	return gather(n, func(i int, add func(Shot)) {
		<-gun
		add(Shoot(client, urls[i%len(urls)]))
	})
}

// gather runs do n times concurrently and returns the added shots, ordered by Sent.
func gather(n int, do func(i int, add func(Shot))) []Shot {
	all := make([][]Shot, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			do(i, func(s Shot) { all[i] = append(all[i], s) })
		})
	}
	wg.Wait()
	shots := slices.Concat(all...)
	slices.SortFunc(shots, bySent)
	return shots
}

func bySent(a, b Shot) int { return a.Sent.Compare(b.Sent) }

// With returns the shots with the given status.
func With(status int, shots []Shot) []Shot {
	return slices.DeleteFunc(slices.Clone(shots), func(s Shot) bool {
		return s.Err != nil || s.Status != status
	})
}

// ByStatus counts the shots by status or error.
func ByStatus(shots []Shot) map[string]int {
	counts := map[string]int{}
	for _, s := range shots {
		if s.Err != nil {
			counts["no answer: "+s.Err.Error()]++
		} else {
			counts[fmt.Sprint(s.Status)]++
		}
	}
	return counts
}

// OnlyStatuses fails the test if a shot has a status other than the given ones.
func OnlyStatuses(t testing.TB, shots []Shot, statuses ...int) {
	t.Helper()
	for _, s := range shots {
		if s.Err != nil || !slices.Contains(statuses, s.Status) {
			t.Fatalf("results %v, want only %v", ByStatus(shots), statuses)
		}
	}
}

// clockSlack is the maximum drift between the limiter's and the test's clock within
// one window.
const clockSlack = time.Millisecond

// Between returns the shots sent at or after from and answered before to.
func Between(shots []Shot, from, to time.Time) []Shot {
	return slices.DeleteFunc(slices.Clone(shots), func(s Shot) bool {
		return s.Sent.Before(from) || !s.Got.Before(to)
	})
}

// MostWithin returns the maximum number of shots that were certainly charged within
// one window: those both sent and answered in it. (A request in flight at either end
// may have been charged outside.)
func MostWithin(shots []Shot, window time.Duration) int {
	most := 0
	for i, first := range shots {
		end := first.Sent.Add(window - clockSlack)
		n := 0
		for _, s := range shots[i:] {
			if !s.Sent.Before(end) {
				break
			}
			if s.Got.Before(end) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Quantiles returns quantiles of the latency.
func Quantiles(shots []Shot) (p50, p99, most time.Duration) {
	if len(shots) == 0 {
		return 0, 0, 0
	}
	took := make([]time.Duration, len(shots))
	for i, s := range shots {
		took[i] = s.Took()
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
}
