package test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestNotify reaches percentages of a limit, one after the other and two at once.
func TestNotify(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		for _, algorithm := range []string{"fixed_window", "sliding_window", "sliding_log"} {
			seen, global := listen(t, "rate_limit_reached")
			s := serve(t, setup{app: b.app(), global: global, site: `
				rate_limit {
					log_key
					zone reached_` + algorithm + ` {
						key {header.X-Key}
						cost {header.X-Cost}
						rule 10/100h ` + algorithm + ` notify 50 80% 100 name most
						rule 1000/100h
					}
				}
				respond ok`})
			costs := func(key string, cost int) req {
				return req{header: map[string]string{"X-Key": key, "X-Cost": strconv.Itoa(cost)}}
			}
			if z := s.zones().Zones[0]; z.Unit != "units" || len(z.Rules[0].Notify) != 3 || z.Rules[1].Notify != nil {
				t.Errorf("zones: unit %q, rules %+v", z.Unit, z.Rules)
			}
			s.want(costs("a", 4), 200)
			s.want(costs("a", 1), 200) // 5 of 10
			s.want(costs("a", 1), 200)
			s.want(costs("a", 9), 429)
			s.want(costs("a", 4), 200) // 10 of 10: two at once
			s.want(costs("b", 4), 200)
			var told []string
			for _, e := range seen.wait(t, "rate_limit_reached", 3) {
				told = append(told, fmt.Sprintln(e.Data["zone"], e.Data["rule"], e.Data["percent"], e.Data["limit"], e.Data["used"], e.Data["key"]))
			}
			zone := "reached_" + algorithm
			want := zone + " most 50 10 5 a\n" + zone + " most 80 10 10 a\n" + zone + " most 100 10 10 a\n"
			if got := strings.Join(told, ""); got != want {
				t.Errorf("events %q, want %q", got, want)
			}
			s.log.wait(t, "rate limit reached")
			if n := len(s.log.lines(t, "rate limit reached")); n != 3 {
				t.Errorf("%d lines, want 3", n)
			}
		}
	})
}

// TestNotifyOnce sends requests whose responses tell their cost, all at once: whatever is charged
// together, each percentage is told once.
func TestNotifyOnce(t *testing.T) {
	const limit, requests = 10_000, 120
	percents := []int{1, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100}
	var list []string
	for _, p := range percents {
		list = append(list, strconv.Itoa(p))
	}
	onBoth(t, func(t *testing.T, b backend) {
		for name, option := range map[string]string{
			"held":      "cost 10\nsettle {http.response.header.X-Cost}\nhold",
			"settled":   "cost 1\nsettle {http.response.header.X-Cost}",
			"status":    "cost {header.X-Cost}\ncount_status 200",
			"in_flight": "cost 1\nsettle {http.response.header.X-Cost}\nin_flight 1000",
			"at_once":   "cost {header.X-Cost}",
		} {
			seen, global := listen(t, "rate_limit_reached")
			site := handle(t, "*", func(w http.ResponseWriter, r *http.Request) error {
				w.Header().Set("X-Cost", r.Header.Get("X-Cost"))
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
				w.WriteHeader(http.StatusOK)
				return nil
			})
			s := serve(t, setup{app: b.app(), global: global, site: "rate_limit {\nzone once_" + name + " {\nkey {header.X-Key}\n" + option + "\nrule " +
				strconv.Itoa(limit) + "/100h fixed_window notify " + strings.Join(list, " ") + "\n}\n}\n" + site})
			var all sync.WaitGroup
			sum := 0
			for range requests {
				cost := 1 + rand.IntN(60)
				sum += cost
				all.Go(func() { s.want(req{header: map[string]string{"X-Key": "a", "X-Cost": strconv.Itoa(cost)}}, 200) })
			}
			all.Wait()
			want := 0
			for _, p := range percents {
				if sum*100 >= p*limit {
					want++
				}
			}
			seen.wait(t, "rate_limit_reached", want)
			times := make(map[any]int)
			for _, e := range seen.named("rate_limit_reached") {
				if times[e.Data["percent"]]++; times[e.Data["percent"]] > 1 {
					t.Errorf("%s: %v %% twice", name, e.Data["percent"])
				}
			}
			if len(times) != want {
				t.Errorf("%s: %d of %d charged: %v, want %d percentages", name, sum, limit, times, want)
			}
		}
	})
}
