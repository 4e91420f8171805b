package simulation

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// stuckAfter is how long a run may send no packet, in real time.
const stuckAfter = 15 * time.Second

// stuck is how a process says that its run was cut off. go-redis holds a lock while it
// connects, as that of a subscription, and who waits for a lock keeps the time of a bubble from
// passing: Close then waits for ever for a connection whose timeout never comes.
const stuck = "the run is stuck: time does not pass"

// watch ends the process when no packet is sent any more. It runs outside of the bubble.
func (n *network) watch(ended <-chan struct{}) {
	last := n.packets.Load()
	for {
		select {
		case <-ended:
			return
		case <-time.After(stuckAfter):
		}
		now := n.packets.Load()
		if now == last {
			trace := make([]byte, 16<<20)
			all := keepers(trace[:runtime.Stack(trace, true)])
			if slices.ContainsFunc(all, locksInGoRedis) {
				fmt.Println(stuck)
			} else {
				fmt.Printf("panic: %s\n%s\n", stuck, bytes.Join(all, []byte("\n\n")))
			}
			os.Exit(3)
		}
		last = now
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

// locksInGoRedis says whether a goroutine waits for a lock in go-redis.
func locksInGoRedis(one []byte) bool {
	state, stack, _ := bytes.Cut(one, []byte("\n"))
	return bytes.Contains(state, []byte("Mutex")) && bytes.Contains(stack, []byte("github.com/redis/go-redis/v9."))
}
