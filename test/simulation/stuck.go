package simulation

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
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
			waiting := lockWaiters(trace[:runtime.Stack(trace, true)])
			if bytes.Contains(waiting, []byte("github.com/redis/go-redis/v9.")) {
				fmt.Println(stuck)
			} else {
				fmt.Printf("panic: %s\n%s\n", stuck, waiting)
			}
			os.Exit(3)
		}
		last = now
	}
}

// lockWaiters returns the part of a trace of all goroutines that concerns those of the bubble
// that keep its time from passing.
func lockWaiters(trace []byte) (list []byte) {
	for one := range bytes.SplitSeq(trace, []byte("\n\n")) {
		state, _, _ := bytes.Cut(one, []byte("\n"))
		if bytes.Contains(state, []byte("synctest bubble")) && !bytes.Contains(state, []byte("(durable)")) {
			list = append(append(list, one...), "\n\n"...)
		}
	}
	return list
}
