package redis

import (
	"runtime"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
)

// instructionsHeld is what a build of Redis executes for a check: say in the commit why it
// changes. Other builds of the same version execute more or less.
var instructionsHeld = map[string]int{
	"amd64 7.0.15 ae4d7c971a948f0": 20_600, // Debian 12
}

// mostRise is how much more than that is accepted, in percent.
const mostRise = 3

// TestInstructions counts what the server executes for a check of gcra: 32 in a call, and Redis
// has each key. That does not depend on the load of the machine. The least of some calls counts,
// because what Redis does on its own only adds. Each is counted alone: on a busy machine a few
// would never be without Redis' task of each second.
func TestInstructions(t *testing.T) {
	underCallgrind(t)
	const keys, limit, calls = 100, 10_000_000, 30
	r := newBenchRedis(t, "gcra", keys, storekit.BenchRule{Alg: new(algorithms.GCRA), Limit: limit, Window: 10 * time.Hour})
	for i := range uint64(keys) { // Redis has them for hours
		check := r.newCheck()
		check.Zones[0].Cost = limit / 2
		r.decide(t, check, i)
	}
	r.stop() // no heartbeats: how many there are depends on the machine
	r.done.Wait()
	if err := r.client.ConfigSet(t.Context(), "hz", "1").Err(); err != nil { // fewer periodic tasks
		t.Fatal(err)
	}
	least := 0
	for n := range calls {
		before := r.instructions(t)
		r.together(t, n*batch)
		if each := int(r.instructions(t)-before) / batch; n == 0 || each < least {
			least = each
		}
	}
	info := r.client.InfoMap(t.Context(), "server").Item
	build := runtime.GOARCH + " " + info("Server", "redis_version") + " " + info("Server", "redis_build_id")
	held, ok := instructionsHeld[build]
	if !ok {
		t.Logf("%d instructions a check; compared with nothing: no number is held for the build %s", least, build)
		return
	}
	t.Logf("%d instructions a check, %d are held", least, held)
	if least*100 > held*(100+mostRise) {
		t.Errorf("%d instructions a check, want at most %d %% above %d", least, mostRise, held)
	}
}
