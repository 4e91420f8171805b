package xcaddytest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// received returns the lines about requests in the log of the admin endpoint.
func received(c *harness.Caddy) int { return strings.Count(c.Log(), `"received request"`) }

// untilBusy sends requests of a key until the page shows one that is busy. Counts halve once a
// minute, and one alone may be gone before it is shown.
func (b *browser) untilBusy(t *testing.T, c *harness.Caddy, path string) {
	t.Helper()
	harness.Until(t, harness.Patience, "the key to be busy", func() bool {
		c.Get(t, path)
		return !strings.Contains(b.text(t, "#busiest"), "none yet")
	})
}

// TestPageLogsLittle checks that an open page makes no request after its first ones: Caddy
// logs each request to the admin endpoint. A reload and the end of the process do not wait for
// the page.
func TestPageLogsLittle(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: twoZones, Admin: browsable})
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#zones", "one")
	b.click(t, `[data-zone="one"] h2 a`)
	b.until(t, "#zone-facts", "this process")
	before, steps := received(c), b.value(t, `Number(performance.now())`)
	shows := func() string { return b.text(t, "#state") }
	seen := make(map[string]bool)
	harness.Until(t, harness.Patience, "five messages", func() bool {
		seen[shows()] = true
		return len(seen) > 5
	})
	if n := received(c) - before; n != 0 {
		t.Errorf("%d requests in %.0f s of an open page", n, (b.value(t, `Number(performance.now())`)-steps)/1000)
	}
	b.untilBusy(t, c, "/?k=now")

	begin, changes := time.Now(), strings.NewReplacer(`"limit":2`, `"limit":7`, `"name":"two"`, `"name":"new"`)
	if status := c.Load(t, changes.Replace(c.Running(t))).Status; status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	if took := time.Since(begin); took > 5*time.Second {
		late(t, "the reload took %v with an open page", took)
	}
	b.until(t, "#zone-marks", "Caddy started", "loaded")
	b.until(t, "#zone-rules", "7/1h")
	b.holds(t, "the zones of the configuration, and no others", `[...document.querySelectorAll("[data-zone]")].map((z) => z.dataset.zone).sort().join() === "new,one,pair"`)
	begin = time.Now()
	c.Restart(t)
	if took := time.Since(begin); took > 10*time.Second {
		late(t, "the restart took %v with an open page", took)
	}
	b.until(t, "#state", "live")
	b.until(t, "#zone-rules", "2/1h") // the file has it
}

// manyZones returns the configuration of an instance with n zones.
func manyZones(n int) string {
	var b strings.Builder
	b.WriteString("rate_limit {\n")
	for i := range n {
		fmt.Fprintf(&b, "zone z%04d {\nmatch path /z%04d\nkey {query.k}\nmax_keys 1000\nrule 100/1m\nrule 5/1s gcra burst 10\n}\n", i, i)
	}
	b.WriteString("}\nrespond ok")
	return b.String()
}

// processorTime returns how long a process has used processors.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatalf("%v: want Linux, whose /proc tells the processor time of a process", err)
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// streamed returns the bytes of a stream of messages, of the first one and of those in d.
func streamed(t *testing.T, c *harness.Caddy, d time.Duration) (first, rest int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Admin+"/rate_limit/live", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buffer, total := make([]byte, 1<<16), 0
	for {
		n, err := resp.Body.Read(buffer)
		total += n
		if first == 0 && strings.HasSuffix(string(buffer[:n]), "\n\n") {
			first = total
			time.AfterFunc(d, cancel)
		}
		if first > 0 && (err == io.EOF || ctx.Err() != nil) {
			return first, total - first
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// asShown makes a tab believe that it is shown.
var asShown = chromedp.ActionFunc(func(ctx context.Context) error {
	_, err := page.AddScriptToEvaluateOnNewDocument(`Object.defineProperty(document, "hidden", { get: () => false })`).Do(ctx)
	return err
})

// TestPageUnderLoad opens the page of an instance with a thousand busy zones in tabs, and
// reports the processor time that they take Caddy, the bytes, and the frames of the page.
// Under make chaos there are five tabs, and nothing runs beside them.
func TestPageUnderLoad(t *testing.T) {
	t.Parallel()
	const zones, rate = 1000, 200
	tabs, seconds := pick(5, 2), pick(12, 3)
	long := time.Duration(seconds) * time.Second
	c := harness.StartCaddy(t, harness.Config{Site: manyZones(zones), Admin: browsable})
	more, stop := untilStopped(t)
	targets := make([]string, zones)
	for i := range targets {
		targets[i] = fmt.Sprintf("%s/z%04d?k=a", c.URL, i*7919%zones)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		harness.Pace(rate, more, targets...)
	}()
	defer func() {
		stop()
		<-done
	}()
	time.Sleep(2 * time.Second)
	used := func() time.Duration {
		begin := processorTime(t, c.PID())
		time.Sleep(long)
		return (processorTime(t, c.PID()) - begin) / time.Duration(seconds)
	}
	without := used()
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#shown", "200 of 1,000 zones")
	var frames struct {
		Rate float64 `json:"rate"`
		Gap  float64 `json:"gap"`
	}
	b.run(t, chromedp.Evaluate(`new Promise((done) => {
		let n = 0, gap = 0, last = performance.now();
		const start = last, each = (now) => {
			n++; gap = Math.max(gap, now - last); last = now;
			if (now - start < 3000) requestAnimationFrame(each); else done({ rate: n / (now - start) * 1000, gap });
		};
		requestAnimationFrame(each);
	})`, &frames, awaited))
	for range tabs - 1 {
		ctx, cancel := chromedp.NewContext(b)
		defer cancel()
		// A tab in the background is hidden, and would receive nothing.
		if err := chromedp.Run(ctx, asShown, chromedp.Navigate(c.Admin+"/rate_limit/")); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, harness.Patience, "another tab to show the zones", func() (ok bool) {
			if err := chromedp.Run(ctx, chromedp.Evaluate(`document.querySelectorAll(".many tbody tr").length === 200`, &ok)); err != nil {
				t.Fatal(err)
			}
			return ok
		})
	}
	with := used()
	first, rest := streamed(t, c, long)
	perMinute := rest * 60 / seconds
	t.Logf("%d zones, %d requests/s, %d tabs: Caddy uses %.1f %% of a processor, without pages %.1f %%; a page receives %d kB at once and %d kB a minute; %.0f frames a second, the longest %.0f ms",
		zones, rate, tabs, 100*with.Seconds(), 100*without.Seconds(), first/1000, perMinute/1000, frames.Rate, frames.Gap)
	if perMinute > 4_000_000 {
		t.Errorf("%d bytes a minute, want at most 4 MB", perMinute)
	}
	if with-without > 250*time.Millisecond {
		late(t, "the pages take %v of processor time a second", with-without)
	}
	if frames.Rate < 20 {
		late(t, "%.0f frames a second", frames.Rate)
	}
}

// axe is the accessibility checker that .ci/need pages installs.
const axe = "../bin/axe-core/axe.min.js"

// loadAxe puts the accessibility checker into the page.
func (b *browser) loadAxe(t *testing.T) {
	t.Helper()
	script, err := os.ReadFile(axe)
	if err != nil {
		t.Fatalf("%v: run .ci/need pages", err)
	}
	b.run(t, chromedp.Evaluate(string(script)+`;""`, nil))
}

// audit fails the test for each finding about what the page shows, light and dark.
func (b *browser) audit(t *testing.T, state string) {
	t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		b.run(t, screen(1280, 800, false, scheme))
		var text string
		b.run(t, chromedp.Evaluate(`axe.run(document).then((r) => JSON.stringify({passes: r.passes.length, violations: r.violations.map((v) => ({
			id: v.id, impact: v.impact, help: v.help, at: v.nodes.map((n) => n.target.join(" ") + " " + n.failureSummary).slice(0, 3)}))}))`, &text, awaited))
		var result struct {
			Passes     int
			Violations []struct {
				ID, Impact, Help string
				At               []string
			}
		}
		if err := json.Unmarshal([]byte(text), &result); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if result.Passes < 20 {
			t.Errorf("%s, %s: only %d rules apply", state, scheme, result.Passes)
		}
		for _, f := range result.Violations {
			t.Errorf("%s, %s: %s (%s): %s\n%s", state, scheme, f.ID, f.Impact, f.Help, strings.Join(f.At, "\n"))
		}
	}
}

// TestPageIsAccessible runs axe-core in each state of the page, light and dark: there are no
// findings, of whatever severity.
func TestPageIsAccessible(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	c := startPaged(t, redis)
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#zones", "api")
	b.loadAxe(t)
	b.audit(t, "overview")
	b.click(t, `[data-zone="api"] h2 a`)
	b.until(t, "#busiest", "<img")
	b.click(t, "#zone-table summary")
	b.audit(t, "zone")
	b.click(t, "#busiest tbody button")
	b.until(t, "#answer", "next request")
	b.audit(t, "key")
	b.click(t, "#answer .buttons button")
	b.until(t, "#ask", "Reset")
	b.audit(t, "question")
	b.click(t, "#ask-no")
	b.click(t, "#key .close")
	b.click(t, "#zone .close")
	b.click(t, "#open-explain")
	b.enter(t, "#explain [name=url]", c.URL+"/api?k=a")
	b.enter(t, "#explain [name=client_ip]", "192.0.2.1")
	b.click(t, "#explain button.main")
	b.until(t, "#explanation", "zone")
	b.audit(t, "explanation")
	b.click(t, "#explain .close")
	b.click(t, "#open-every")
	b.until(t, "#rules-form", "For an incident")
	b.click(t, "#rules-shadow")
	b.click(t, "#rules-form button.main")
	b.until(t, "#rules-answer", "would take the document")
	b.audit(t, "switch of all zones")
	b.click(t, "#rules .close")
	redis.Kill(t)
	b.until(t, "#banners", "redis has been away")
	b.audit(t, "outage")
	redis.Start(t)
	b.until(t, "#health", "redis shared for")
}
