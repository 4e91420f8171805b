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

// stuck is how a process says that its run was cut off. go-redis holds the lock of a
// subscription while it connects, and who waits for a lock keeps the time of a bubble from
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
			trace = trace[:runtime.Stack(trace, true)]
			if bytes.Contains(trace, []byte("(*PubSub).Close")) && bytes.Contains(trace, []byte("sync.Mutex.Lock")) {
				fmt.Println(stuck)
			} else {
				fmt.Printf("panic: %s\n%s\n", stuck, trace)
			}
			os.Exit(3)
		}
		last = now
	}
}
