package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// farWay is there and back to a Redis that is far, and farTimeout the default timeout, which is short
// for it.
const (
	farWay     = 12 * time.Millisecond
	farTimeout = 25 * time.Millisecond

	farStalls = 6  // of each seed
	farOpened = 60 // connections that are opened for each at most

	farPromise = "before: 99 % in Redis; shared again <= 2 s; <= 60 connections for each stall; 12 s of 100/s under 100/1h: " +
		"allow admits <= 115, deny answers 503 to <= 15"
)

// farSeed is what the faults of a far Redis are drawn from: DIANA_FAR_SEED, or 1. Further seeds follow it.
func farSeed() uint64 {
	n, err := strconv.ParseUint(cmp.Or(os.Getenv("DIANA_FAR_SEED"), "1"), 10, 64)
	if err != nil {
		panic("DIANA_FAR_SEED: want a number")
	}
	return n
}

// far has a Redis that is 12 ms away, which faults drawn from seeds make farther or hold back.
func far(t *testing.T, out *result) {
	limitsFromTheStart(t, out)
	srv := redistest.Start(t)
	p := redistest.StartProxy(t, srv.Addr, farWay)
	s := begin(t, fmt.Sprintf("%s {\n\t\t\ttimeout %v\n\t\t}", p.Addr, farTimeout))
	for seed := farSeed(); seed < farSeed()+3; seed++ {
		r, opened := rand.New(rand.NewPCG(seed, 1)), p.Opened.Load()
		played := s.play(play{calm: 3 * time.Second, after: 4 * time.Second, begin: func() { disturb(p, r) }})
		out.report("seed %d", seed)
		s.checkAll(played, out, promise{wait: farTimeout + 10*time.Millisecond})
		checkRecovery(t, played, out, played.ended, 2*time.Second)
		checkShared(t, during(played.shots, played.start, played.gone), out)
		opened = p.Opened.Load() - opened
		out.report("%d connections opened", opened)
		if opened > farStalls*farOpened {
			t.Errorf("seed %d: %d connections were opened, want at most %d for each of %d stalls", seed, opened, farOpened, farStalls)
		}
	}
	srv.CheckTTLs()
}

// disturb has replies take three times as long, one of ten, and holds all back in between.
func disturb(p *redistest.Proxy, r *rand.Rand) {
	defer p.Set(farWay, false)
	for range farStalls {
		p.Set(farWay, r.IntN(2) == 0)
		time.Sleep(500*time.Millisecond + time.Duration(r.Int64N(int64(time.Second))))
		pass := p.Stall()
		time.Sleep(20*time.Millisecond + time.Duration(r.Int64N(int64(280*time.Millisecond))))
		pass()
	}
}

// checkShared checks that Redis has decided nearly all of some shots.
func checkShared(t *testing.T, shots []harness.Shot, out *result) {
	t.Helper()
	local := 0
	for _, s := range shots {
		if decidedLocally(s) {
			local++
		}
	}
	out.report("%d of %d decided locally before", local, len(shots))
	if local*100 > len(shots) {
		out.late(t, "%d of %d decided locally at %v of %v, want at most 1 %%", local, len(shots), farWay, farTimeout)
	}
}

// limitsFromTheStart has a limit that is not on_failure local in force from the first request on.
func limitsFromTheStart(t *testing.T, out *result) {
	const limit, most = 100, 15 // while it connects
	p := redistest.StartProxy(t, redistest.Start(t).Addr, farWay)
	store := func(onFailure string) string {
		return fmt.Sprintf("\t\tstore redis %s {\n\t\t\tname %[2]s\n\t\t\tkey_prefix %[2]s\n\t\t\ttimeout %[3]v\n\t\t\ton_failure %[2]s\n\t\t}\n", p.Addr, onFailure, farTimeout)
	}
	site := func(onFailure string) string {
		return fmt.Sprintf("\trate_limit /%[1]s {\n\t\tzone %[1]s {\n\t\t\tstore %[1]s\n\t\t\trule %[2]d/1h\n\t\t}\n\t}\n", onFailure, limit)
	}
	c := harness.StartCaddy(t, harness.Config{
		Global: "\tlog {\n\t\texclude http.handlers.rate_limit\n\t}\n\trate_limit {\n" + store("allow") + store("deny") + "\t}",
		Site:   site("allow") + site("deny") + "\trespond ok",
	})
	shots := harness.Pace(200, harness.During(12*time.Second), c.URL+"/allow", c.URL+"/deny")
	admitted, unavailable := 0, 0
	for _, s := range shots {
		switch {
		case s.Status == http.StatusServiceUnavailable:
			unavailable++
		case s.Status == http.StatusOK && pathOf(s) == "/allow":
			admitted++
		}
	}
	out.report("of %d from the start on, allow admitted %d, deny answered 503 to %d", len(shots), admitted, unavailable)
	if admitted > limit+most || unavailable > most {
		out.late(t, "allow admitted %d under a limit of %d, deny answered 503 to %d: want %d more and %d at most", admitted, limit, unavailable, most, most)
	}
}
