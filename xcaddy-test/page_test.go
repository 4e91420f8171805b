package xcaddytest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const paged = `	rate_limit {
		zone api {
			match path /api
			key {query.k}
			rule 10/1s gcra burst 5
			rule 100000/1h
		}
		zone login {
			match path /login
			key {query.k}
			rule 3/1h name tries
		}
		zone watch {
			rule 1/1h
			shadow
		}
		log_key
	}
	respond ok`

// browser is a headless Chromium with the errors of its page.
type browser struct {
	context.Context

	mu        sync.Mutex
	problems  []string
	requested map[string]bool // hosts
}

// startBrowser starts Chromium, which runs until the end of the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {})) // chromedp does not know every event
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	b := &browser{Context: ctx, requested: make(map[string]bool)}
	chromedp.ListenTarget(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.problems = append(b.problems, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				b.problems = append(b.problems, fmt.Sprint(e.Type, e.Args))
			}
		case *network.EventRequestWillBeSent:
			if u, err := url.Parse(e.Request.URL); err == nil && u.Scheme != "data" {
				b.requested[u.Host] = true
			}
		}
	})
	return b
}

func (b *browser) run(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(b, actions...); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.Fatalf("%v; the page: %v", err, b.problems)
	}
}

// click clicks the center of an element.
func (b *browser) click(t *testing.T, selector string) {
	t.Helper()
	var at []float64
	b.run(t, chromedp.Evaluate(fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})()`, selector), &at))
	b.run(t, chromedp.MouseClickXY(at[0], at[1]))
}

// enter types into an element.
func (b *browser) enter(t *testing.T, selector, text string) {
	t.Helper()
	b.click(t, selector)
	b.run(t, input.InsertText(text))
}

// text returns the text of an element.
func (b *browser) text(t *testing.T, selector string) (text string) {
	t.Helper()
	b.run(t, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector), &text))
	return text
}

// until waits until an element's text contains all parts.
func (b *browser) until(t *testing.T, selector string, parts ...string) {
	t.Helper()
	var got string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		got = b.text(t, selector)
		found := true
		for _, p := range parts {
			found = found && strings.Contains(got, p)
		}
		if found {
			return
		}
	}
	t.Fatalf("%s shows %q, want %q; the page says %q, its console %v", selector, got, parts, b.text(t, "body"), b.problems)
}

// shot saves a screenshot in the folder DIANA_SHOTS.
func (b *browser) shot(t *testing.T, name string) {
	t.Helper()
	var png []byte
	b.run(t, chromedp.CaptureScreenshot(&png))
	if len(png) < 10_000 {
		t.Errorf("screenshot %s has %d bytes", name, len(png))
	}
	if dir := os.Getenv("DIANA_SHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func screen(width, height int64, phone bool, scheme string) chromedp.Action {
	return chromedp.Tasks{
		emulation.SetDeviceMetricsOverride(width, height, 1, phone),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
	}
}

// TestLivePage checks in a real browser that the live page shows current decisions
// and that its buttons work.
func TestLivePage(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	c := harness.StartCaddy(t, harness.Config{
		Global: onRedisWith(redis, "rules redis diana:rules", "timeout 1s"), Site: paged,
		Admin: `origins ` + harness.AdminAddress + ` ""`, // from docs/operating.md
	})
	push(t, redis, `{"zones": {"watch": {"rules": [{"limit": 2, "window": "1h"}]}, "else<b>where": {}}}`)
	evil := url.QueryEscape(`<img src=x onerror="document.title='owned'">` + "\x00\x1b[31m")
	more, stop := untilStopped(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		harness.Pace(60, more, c.URL+"/api?k=a", c.URL+"/api?k=a", c.URL+"/api?k=b", c.URL+"/api?k="+evil, c.URL+"/login?k=eve")
	}()
	defer func() {
		stop()
		<-done
	}()
	harness.Until(t, 30*time.Second, "ten seconds of history", func() bool {
		var h struct {
			Zones map[string]struct{ Allowed, Denied []int }
		}
		got := harness.Do(t, http.MethodGet, c.Admin+"/rate_limit/history?zone=api", "")
		if err := json.Unmarshal([]byte(got.Body), &h); err != nil {
			t.Fatalf("%v: %s", err, got.Body)
		}
		return len(h.Zones["api"].Denied) >= 5
	})
	b := startBrowser(t)
	b.run(t, network.Enable(), runtime.Enable(), screen(1280, 800, false, "light"), chromedp.Navigate(c.Admin+"/rate_limit/"))
	b.until(t, "#zones", "api", "login", "watch", "10/1s gcra burst 5", "100000/1h", "3/1h", "2/1h", "shadow", "redis")
	b.until(t, "#health", "redis: shared for", "1 instance", "rules from redis", "confirmed", "else<b>where", "decisions redis")
	harness.Until(t, 20*time.Second, "allowed and denied requests to be shown", func() bool {
		rate := b.text(t, `[data-zone="api"] .rate`)
		return !strings.HasPrefix(rate, "0/s") && !strings.HasSuffix(rate, " 0/s")
	})
	// Both curves are drawn and include the time before the page was opened.
	harness.Until(t, 20*time.Second, "the graph of zone api to show both curves, and the past", func() (drawn bool) {
		b.run(t, chromedp.Evaluate(`(() => {
			const c = document.querySelector('[data-zone="api"] canvas'), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
			let red = 0, first = c.width, last = 0;
			for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200) {
				if (d[i] > d[i + 2] + 80) red++;
				if (d[i + 2] > d[i] + 80) first = Math.min(first, i / 4 % c.width), last = Math.max(last, i / 4 % c.width);
			}
			// The chart covers at least a minute.
			return red > 20 && (last - first) / c.width * 60 > performance.now() / 1000 + 4;
		})()`, &drawn))
		return drawn
	})
	b.shot(t, "light")

	b.click(t, `[data-zone="login"]`)
	b.until(t, "#zone-name", "login")
	b.until(t, "#busiest", "eve")
	b.until(t, "#denied", "eve")
	b.until(t, "#zone-facts", "tries: ", "{http.request.uri.query.k}")
	b.enter(t, "#parts input", "eve")
	b.click(t, "#look")
	b.until(t, "#answer", "denied", "by tries", "again in", "3/1h")
	b.click(t, "#reset")
	b.until(t, "#answer", "forgotten everywhere", "allowed")
	b.shot(t, "zone")
	b.click(t, "#close")
	b.click(t, `[data-zone="api"]`)
	b.until(t, "#busiest", "<img src=x onerror=")
	b.click(t, "#busiest tr:nth-child(2) button")
	b.until(t, "#answer", "10/1s", "shared")
	b.click(t, "#close")

	b.enter(t, "#filter", "LOG")
	harness.Until(t, 10*time.Second, "the filter to leave one zone", func() bool {
		var n int
		b.run(t, chromedp.Evaluate(`document.querySelectorAll(".zone").length`, &n))
		return n == 1
	})
	b.run(t, chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace))
	b.run(t, screen(1280, 800, false, "dark"), chromedp.Sleep(3*time.Second))
	b.shot(t, "dark")
	b.run(t, screen(390, 844, true, "dark"), chromedp.Sleep(3*time.Second))
	b.shot(t, "phone")
	var wide int
	b.run(t, chromedp.Evaluate(`document.documentElement.scrollWidth - innerWidth`, &wide))
	if wide > 0 {
		t.Errorf("on a phone the page is %d pixels too wide", wide)
	}
	b.click(t, `[data-zone="api"]`)
	b.until(t, "#busiest", "<img")
	b.shot(t, "phone-zone")
	b.click(t, "#close")
	b.run(t, screen(390, 844, true, "light"), chromedp.Sleep(3*time.Second))
	b.shot(t, "phone-light")

	redis.Kill(t)
	b.until(t, "#health", "redis: away for", "on_failure local")
	redis.Start(t)
	b.until(t, "#health", "redis: shared for")
	if title := b.text(t, "title"); title == "owned" {
		t.Error("a key is rendered as markup")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) > 0 {
		t.Errorf("errors of the page: %v", b.problems)
	}
	if u, _ := url.Parse(c.Admin); len(b.requested) != 1 || !b.requested[u.Host] {
		t.Errorf("the page requests hosts %v, want only %s", b.requested, u.Host)
	}
}

// sharedPage is the read-only site for the page from docs/operating.md.
const sharedPage = `	handle /rate_limit/* {
		basic_auth {
			ops $2a$14$a8FK9rGDthsefNF8LiEZ7uOFYy8wOllKpoCaY4jpx0IxcCoQtJgHK
		}
		@write not method GET
		respond @write 405
		reverse_proxy ` + harness.AdminAddress + ` {
			header_up Host ` + harness.AdminAddress + `
			header_up -Origin
			header_up -Referer
			header_up -Sec-Fetch-Mode
		}
	}
	handle {
		rate_limit {query.k} 2/1h {
			name front
		}
		respond ok
	}`

// TestLivePageOnASite checks that the page works on a site behind a password and
// cannot change anything there.
func TestLivePageOnASite(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: sharedPage})
	if status := c.Get(t, "/rate_limit/").Status; status != http.StatusUnauthorized {
		t.Fatalf("status %d without a password", status)
	}
	for range 3 {
		c.Get(t, "/?k=a")
	}
	b := startBrowser(t)
	b.run(t, network.Enable(), runtime.Enable(), screen(1280, 800, false, "light"),
		chromedp.Navigate(strings.Replace(c.URL, "//", "//ops:hiccup@", 1)+"/rate_limit/"))
	b.until(t, "#zones", "front", "2/1h")
	b.until(t, "#health", "counts in this process")
	b.click(t, `[data-zone="front"]`)
	b.enter(t, "#parts input", "a")
	b.click(t, "#look")
	b.until(t, "#answer", "denied")
	b.click(t, "#reset")
	b.until(t, "#answer", "status 4")
	if status := c.Get(t, "/?k=a").Status; status != http.StatusTooManyRequests {
		t.Errorf("status %d: the key was reset", status)
	}
}
