package test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestHangUps has clients hang up at every moment of their wait, while the configuration is loaded again and again. In the end
// all places are free.
func TestHangUps(t *testing.T) {
	site := overload(2, "rule 100000/1h\nmax_wait 1s\nmax_waiting 100") + handle(t, "*", func(http.ResponseWriter, *http.Request) error {
		time.Sleep(2 * time.Millisecond)
		return nil
	})
	s := serve(t, setup{site: site})
	var served, left atomic.Int64
	var all sync.WaitGroup
	done := make(chan struct{})
	client := func(i int, patience func(n int) time.Duration) {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience(n))
			if a, err := s.try(req{ctx: ctx, header: map[string]string{"X-Tier": []string{"paid", "free", ""}[(n+i)%3]}}); err != nil {
				left.Add(1)
			} else if a.status == 200 {
				served.Add(1)
			}
			cancel()
		}
	}
	for i := range 40 { // twenty hang-ups a millisecond, as far as the machine can
		all.Go(func() {
			client(i, func(n int) time.Duration { return time.Duration((n*7+i*13)%40) * 100 * time.Microsecond })
		})
	}
	for i := range 4 {
		all.Go(func() { client(i, func(int) time.Duration { return time.Minute }) })
	}
	for i := range 5 {
		before, gone := served.Load(), left.Load()
		until(t, "requests to be served and to leave", func() bool { return served.Load() > before+20 && left.Load() > gone+200 })
		s.reload(setup{site: site + strings.Repeat("\n", i)})
	}
	close(done)
	all.Wait()
	s.wantFree()
	ended(t)
	s.want(req{}, 200)
}

// TestFairPlaces has twenty requests of one key wait, and then one each of five keys: these are served first.
func TestFairPlaces(t *testing.T) {
	g := newGate()
	s := serve(t, setup{site: overload(1, "key {header.X-Account}\nmax_wait 1m\nmax_waiting 200") + handle(t, "*", g.ServeHTTP)})
	send := func(account string) (status <-chan int) {
		done := make(chan int, 1)
		go func() { done <- s.send(req{header: map[string]string{"X-Account": account, "X-Tier": "paid"}}).status }()
		return done
	}
	status := send("heavy") // a request takes some time, which is what keys are compared by
	<-g.entered
	time.Sleep(5 * time.Millisecond)
	g.goOn <- true
	<-status
	all := []<-chan int{send("heavy")}
	<-g.entered
	for i := range 25 {
		account := "heavy"
		if i >= 20 {
			account = fmt.Sprint("light", i)
		}
		all = append(all, send(account))
		s.wantWaiting(i + 1)
	}
	for i := range 25 {
		g.goOn <- true
		if account := (<-g.entered).Header.Get("X-Account"); (account == "heavy") != (i >= 5) {
			t.Errorf("%s is served as number %d: want the light keys first", account, i+1)
		}
	}
	g.goOn <- true
	for _, status := range all {
		if n := <-status; n != 200 {
			t.Errorf("status %d: want 200", n)
		}
	}
	s.wantFree()
}
