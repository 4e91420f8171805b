package xcaddytest

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// placedSite returns a site with two places, and a zone whose limit may move, before an upstream.
func placedSite(upstream string) string {
	return `	rate_limit {
		zone upstream {
			match path /held
			key {header.X-Account}
			in_flight adaptive {
				min 2
				max 2
				priority {header.X-Tier} paid free
			}
			max_wait 10m
		}
		zone moves {
			match path /fine /slow
			in_flight adaptive
		}
		zone plain {
			rule 100000/1h
		}
	}
	reverse_proxy ` + upstream
}

// heldUpstream starts an upstream that holds requests for /held until the function that it returns is called, and fails those
// for /slow slowly.
func heldUpstream(t *testing.T) (address string, release func()) {
	t.Helper()
	held := make(chan struct{})
	release = sync.OnceFunc(func() { close(held) })
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/held":
			<-held
		case "/slow":
			time.Sleep(time.Second) // far longer than the others, on a busy machine too
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	}))
	t.Cleanup(func() {
		release()
		up.Close()
	})
	return up.Listener.Addr().String(), release
}

// hold sends so many requests of a tier, which the upstream holds.
func hold(t *testing.T, c *harness.Caddy, tier string, n int) {
	t.Helper()
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	for range n {
		all.Go(func() {
			r, err := http.NewRequest(http.MethodGet, c.URL+"/held", http.NoBody)
			if err != nil {
				panic(err)
			}
			r.Header.Set("X-Tier", tier)
			if a, err := http.DefaultClient.Do(r); err == nil {
				_ = a.Body.Close()
			}
		})
	}
}

// stepsOfPlaces returns how many steps the history has of the places of a zone.
func stepsOfPlaces(t *testing.T, c *harness.Caddy, zone string) int {
	t.Helper()
	var h struct {
		Zones map[string]struct{ Places struct{ Limit []float64 } }
	}
	got := harness.Do(t, http.MethodGet, c.Admin+"/rate_limit/history?zone="+zone, "")
	if err := json.Unmarshal([]byte(got.Body), &h); err != nil {
		t.Fatalf("%v: %s", err, got.Body)
	}
	return len(h.Zones[zone].Places.Limit)
}

// TestPageDrawsPlaces checks in a real browser that the page draws the limit, what is in flight and what waits of a zone with
// in_flight adaptive, also of the time before it was opened, and says why the limit moved.
func TestPageDrawsPlaces(t *testing.T) {
	t.Parallel()
	upstream, release := heldUpstream(t)
	c := harness.StartCaddy(t, harness.Config{Site: placedSite(upstream), Admin: browsable})
	defer release()
	hold(t, c, "free", 5)
	harness.Until(t, harness.Patience, "requests to wait", func() bool {
		n, _ := c.Metric(t, "caddy_rate_limit_waiting", "zone", "upstream", "priority", "free")
		return n == 3
	})
	hold(t, c, "paid", 1)
	for range 30 {
		c.Get(t, "/fine")
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 3 {
				harness.Do(t, http.MethodGet, c.URL+"/slow", "")
			}
		})
	}
	all.Wait()
	harness.Until(t, harness.Patience, "ten seconds of history", func() bool {
		return stepsOfPlaces(t, c, "upstream") >= 5
	})
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/#zone=upstream")
	b.until(t, "#places-values", "limit 2", "in flight 2", "waiting paid 1", "waiting free 3")
	b.until(t, "#places-of", "in this instance")
	b.until(t, "#zone-rules", "in_flight", "adaptive")
	b.until(t, "#places-move", "The limit is from 2 to 2. It has not moved yet.")
	// The curves include the time before the page was opened. Blue is in flight, amber and purple wait.
	b.holds(t, "the graph to show what is in flight and waits, and the past", `(() => {
		const c = document.querySelector("#places-plot canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
		let amber = 0, purple = 0, first = c.width, last = 0;
		for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200) {
			if (d[i] > d[i + 2] + 80) amber++;
			if (d[i + 2] > d[i + 1] + 80 && d[i] > d[i + 1] + 40) purple++;
			if (d[i + 2] > d[i] + 80) first = Math.min(first, i / 4 % c.width), last = Math.max(last, i / 4 % c.width);
		}
		return amber > 5 && purple > 5 && (last - first) / c.width * 300 > performance.now() / 1000 + 4;
	})()`)
	b.holds(t, "text beside the graph", `/Places of zone upstream in this instance now: limit 2; in flight 2; waiting paid 1; waiting free 3/.test(document.querySelector("#places-plot").ariaLabel)`)
	b.click(t, "#zone-table summary")
	b.until(t, "#zone-table table", "limit", "in flight", "waiting free")
	b.shot(t, "places")
	b.click(t, "#zone-ranges button:nth-child(2)")
	b.until(t, "#places-values", "limit 2", "waiting free ")
	b.run(t, screen(390, 844, true, "light"))
	b.run(t, chromedp.Evaluate(`document.querySelector("#places").scrollIntoView()`, nil))
	b.shot(t, "places-phone")
	b.fingersFit(t, "places")
	pageFits(t, b)
	b.run(t, screen(1280, 800, false, "light"))
	b.click(t, "#zone-ranges button:nth-child(1)")
	release()
	b.until(t, "#places-values", "in flight 0")
	b.click(t, "#zone .close")

	b.click(t, `[data-zone="moves"] h2 a`)
	b.until(t, "#places-move", "Its last move: brake at ", ": most requests failed slowly")
	b.click(t, "#zone .close")
	b.click(t, `[data-zone="plain"] h2 a`)
	b.until(t, "#zone-values", "allowed")
	b.holds(t, "no places of a zone without them", `document.querySelector("#places").hidden`)
	b.sound(t, c.Admin)
}

// TestPageShowsPlacesOfAll checks that the page of several instances shows the places of each.
func TestPageShowsPlacesOfAll(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	upstream, release := heldUpstream(t)
	all := startMany(t, 2, harness.Config{Global: onRedis(redis, "timeout 10s"), Site: placedSite(upstream), Admin: browsable})
	defer release()
	hold(t, all[0], "free", 2)
	hold(t, all[1], "free", 6)
	// An instance of another version tells less of its places.
	go func() {
		for t.Context().Err() == nil {
			at := binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))
			redis.HSet(t.Context(), "diana:fleet", "7", append(at, `{"host":"other","mode":"shared","zones":[{"zone":"upstream","places":{"limit":9,"in_flight":3}}]}`...))
			time.Sleep(time.Second)
		}
	}()
	b := openBrowser(t)
	b.visit(t, all[0].Admin+"/rate_limit/#zone=upstream")
	b.until(t, "#fleet-line", "3 of 3 instances")
	b.until(t, "#places-of", "each has its own limit")
	b.holds(t, "the places of all", `(() => {
		const rows = [...document.querySelectorAll("#places-members tbody tr")].map((r) => [...r.cells].slice(1).map((c) => c.innerText).join());
		return rows.includes("2,2,0,none yet") && rows.includes("2,2,4,none yet") && rows.includes("9,3,0,none yet");
	})()`)
	b.until(t, "#places-values", "limit 2", "in flight 2")
	b.shot(t, "places-of-all")
	b.sound(t, all[0].Admin)
}
