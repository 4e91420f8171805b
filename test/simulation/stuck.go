package simulation

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// go-redis holds a lock while it connects, as that of a subscription, and who waits for a lock
// keeps the time of a bubble from passing: Close then waits for ever for a connection whose
// timeout never comes. Such a run is cut off and counted. That it cannot go on is certain if no
// goroutine of the bubble can run, and those that keep its time from passing wait for locks. What
// else stands still is a failure.
const (
	lookEvery   = 500 * time.Millisecond // in real time
	locksAfter  = 2                      // so many looks, one after another, that find the same
	silentAfter = 30                     // so many looks without a packet, for whatever reason
)

// watch ends the process when its run cannot go on, and keeps what it has violated by then. It runs
// outside of the bubble.
func (n *network) watch(run *atomic.Pointer[world], ended <-chan struct{}) {
	last, silent, locked := n.packets.Load(), 0, 0
	trace := make([]byte, 16<<20)
	for {
		select {
		case <-ended:
			return
		case <-time.After(lookEvery):
		}
		if now := n.packets.Load(); now != last {
			last, silent, locked = now, 0, 0
			continue
		}
		all := keepers(trace[:runtime.Stack(trace, true)])
		silent++
		if locked++; !deadlocked(all) {
			locked = 0
		}
		switch {
		case locked == locksAfter:
			fmt.Printf("the run is cut off\n%s\n", bytes.Join(all, []byte("\n\n")))
			run.Load().cutOff()
		case silent == silentAfter:
			fmt.Printf("panic: time does not pass\n%s\n", bytes.Join(all, []byte("\n\n")))
		default:
			continue
		}
		os.Exit(3)
	}
}

// cutOff writes the result of a run that is stuck: what it has violated by then.
func (w *world) cutOff() {
	file := os.Getenv(resultVariable)
	if file == "" {
		return
	}
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	if err := os.WriteFile(file, encode(&Result{Plan: *w.plan, Stuck: true, Violations: w.oracle.violations}), 0o600); err != nil { //nolint:gosec // its parent named it
		fmt.Println("panic:", err)
	}
}

// keepers returns those goroutines in a trace that keep the time of the bubble from passing.
func keepers(trace []byte) (list [][]byte) {
	for one := range bytes.SplitSeq(trace, []byte("\n\n")) {
		state, _, _ := bytes.Cut(one, []byte("\n"))
		if bytes.Contains(state, []byte("synctest bubble")) && !bytes.Contains(state, []byte("(durable)")) {
			list = append(list, one)
		}
	}
	return list
}

// deadlocked says whether all keepers wait for locks, and one for a lock of go-redis.
func deadlocked(keepers [][]byte) bool {
	return slices.ContainsFunc(keepers, locksInGoRedis) && !slices.ContainsFunc(keepers, func(one []byte) bool { return !locks(one) })
}

// locks says whether a goroutine waits for a lock.
func locks(one []byte) bool {
	state, _, _ := bytes.Cut(one, []byte("\n"))
	return bytes.Contains(state, []byte("Mutex"))
}

// locksInGoRedis says whether a goroutine waits for a lock in go-redis.
func locksInGoRedis(one []byte) bool {
	_, stack, _ := bytes.Cut(one, []byte("\n"))
	return locks(one) && bytes.Contains(stack, []byte("github.com/redis/go-redis/v9."))
}
