package xcaddytest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
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
	rate_limit {
		zone quiet {
			match path /api
			key {client_ip}
			rule 1000000/1h
		}
	}
	respond ok`

// browsable allows browsers at the admin endpoint, as docs/operating.md has it.
const browsable = `origins ` + harness.AdminAddress + ` ""`

// evilKey is markup, a bidirectional override, a zero-width space and control characters.
const evilKey = `<img src=x onerror="document.title='owned'">` + "\u202egnp.exe\u200b\x00\x1b[31m"

// startPaged starts an instance with remote rules, on which clients are active.
func startPaged(t *testing.T, redis *harness.Redis) *harness.Caddy {
	t.Helper()
	c := harness.StartCaddy(t, harness.Config{Global: onRedisWith(redis, "rules redis diana:rules", "timeout 10s"), Site: paged, Admin: browsable})
	push(t, redis, `{"zones": {"watch": {"rules": [{"limit": 2, "window": "1h"}]}, "else<b>where": {}}}`)
	evil := url.QueryEscape(evilKey)
	more, stop := untilStopped(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		harness.Pace(60, more, c.URL+"/api?k=a", c.URL+"/api?k=a", c.URL+"/api?k=b", c.URL+"/api?k="+evil, c.URL+"/login?k=eve")
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	harness.Until(t, harness.Patience, "ten seconds of history", func() bool {
		var h struct {
			Zones map[string]struct{ Allowed, Denied []int }
		}
		got := harness.Do(t, http.MethodGet, c.Admin+"/rate_limit/history?zone=api", "")
		if err := json.Unmarshal([]byte(got.Body), &h); err != nil {
			t.Fatalf("%v: %s", err, got.Body)
		}
		return len(h.Zones["api"].Denied) >= 5
	})
	return c
}

// TestLivePage checks in a real browser what the live page shows, on a screen, on a phone,
// by its keyboard, and in an outage.
func TestLivePage(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	c := startPaged(t, redis)
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#zones", "api", "login", "watch", "10/1s gcra burst 5", "100000/1h", "tries: 3/1h", "2/1h", "shadow", "rules from redis", "in 5 min"[3:], "would be denied")
	b.until(t, "#health", "redis shared for", "1 instance", "redis:", "calls/s", "checks each", "a call", "rules from redis", "confirmed", "else<b>where", "decisions redis")
	b.until(t, "#instance", "Caddy "+harness.CaddyVersion, "Diana ", "configuration ", "the only instance")
	b.until(t, "#totals", "Requests allowed", "Requests denied", "Share denied", "Would be denied", "Zones", "4")
	b.holds(t, "rates of allowed and denied requests", `(() => {
		const r = document.querySelector('[data-zone="api"] .rate').innerText;
		return !r.startsWith("0/s") && !r.endsWith(" 0/s");
	})()`)
	// Both curves are drawn and include the time before the page was opened.
	b.holds(t, "the graph of zone api to show both curves, and the past", `(() => {
		const c = document.querySelector('[data-zone="api"] canvas'), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
		let red = 0, first = c.width, last = 0;
		for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200) {
			if (d[i] > d[i + 2] + 80) red++;
			if (d[i + 2] > d[i] + 80) first = Math.min(first, i / 4 % c.width), last = Math.max(last, i / 4 % c.width);
		}
		// The chart covers five minutes.
		return red > 20 && (last - first) / c.width * 300 > performance.now() / 1000 + 4;
	})()`)
	b.holds(t, "text beside the graph", `/Requests of zone api in the last 5 min: [\d,]+ allowed, .*[\d,]+ denied/.test(document.querySelector('[data-zone="api"] .plot').ariaLabel)`)
	pageSorts(t, b)
	pageShowsZone(t, b)

	b.run(t, screen(1280, 800, false, "dark"))
	b.shot(t, "dark")
	b.run(t, screen(390, 844, true, "dark"))
	b.shot(t, "phone")
	pageFits(t, b)
	b.click(t, `[data-zone="api"] h2 a`)
	b.until(t, "#busiest", "<img")
	b.shot(t, "phone-zone")
	pageFits(t, b)
	b.click(t, "#zone .close")
	b.run(t, screen(390, 844, true, "light"))
	b.shot(t, "phone-light")
	b.run(t, screen(1280, 800, false, "light"))
	redis.Kill(t)
	b.until(t, "#health", "redis away for", "on_failure local")
	b.until(t, "#banners", "redis has been away", "decided locally")
	redis.Start(t)
	b.until(t, "#health", "redis shared for")
	b.click(t, `[data-zone="api"] h2 a`)
	b.until(t, "#zone-marks", "Caddy started with configuration", "redis away", "redis back")
	b.until(t, "#zone-values", "decided locally")
	if title := b.text(t, "title"); title == "owned" {
		t.Error("a key is rendered as markup")
	}
	b.sound(t, c.Admin)
}

// pageSorts filters and sorts the zones.
func pageSorts(t *testing.T, b *browser) {
	t.Helper()
	b.shot(t, "light")
	order := func(sort, first string) {
		t.Helper()
		b.run(t, chromedp.SetValue("#sort", sort), chromedp.Evaluate(`document.querySelector("#sort").dispatchEvent(new Event("change"))`, nil))
		b.holds(t, "zone "+first+" to be the first, sorted "+sort, `document.querySelector("#zones .zone").dataset.zone === "`+first+`"`)
	}
	order("name", "api")
	order("denied", "watch") // in shadow, it would deny nearly all
	order("busy", "watch")
	b.enter(t, "#filter", "LOG")
	b.holds(t, "the filter to leave one zone", `document.querySelectorAll(".zone").length === 1`)
	b.enter(t, "#filter", "x")
	b.until(t, "#zones", "No zone has", "LOGx")
	b.run(t, chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(kb.Backspace))
	b.holds(t, "all zones", `document.querySelectorAll(".zone").length === 4`)
}

// pageShowsZone opens a zone by the keyboard and looks at its view.
func pageShowsZone(t *testing.T, b *browser) {
	t.Helper()
	b.run(t, chromedp.Focus(`[data-zone="api"] h2 a`))
	b.press(t, kb.Enter)
	b.until(t, "#zone-name", "api")
	// Characters that are not seen, or turn the text around, are shown as escapes.
	b.until(t, "#busiest", "<img src=x onerror=", `\u{202e}gnp.exe\u{200b}\u{0}\u{1b}[31m`)
	b.until(t, "#denied", "a")
	b.until(t, "#zone-facts", "{http.request.uri.query.k}", "shared by 1 instance", "allowed")
	b.until(t, "#zone-rules", "10/1s", "gcra burst 5", "denied")
	b.until(t, "#zone-values", "now", "allowed", "in 5 min")
	// Under the pointer, the values are those of that instant.
	var at []float64
	b.run(t, chromedp.Evaluate(`(() => { const r = document.querySelector("#zone-plot canvas").getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`, &at))
	b.run(t, chromedp.MouseEvent(input.MouseMoved, at[0], at[1]))
	b.holds(t, "the instant under the pointer", `/^\d\d:\d\d:\d\d/.test(document.querySelector("#zone-values time").innerText)`)
	b.shot(t, "zone")
	b.click(t, "#zone-table summary")
	b.until(t, "#zone-table table", "10 s from", "allowed", "denied", "–") // Caddy has not run for five minutes
	b.run(t, chromedp.KeyEvent(kb.Escape))
	b.holds(t, "the view to close, and the focus to return", `!document.querySelector("#zone").open && document.activeElement.closest("[data-zone]")?.dataset.zone === "api"`)
	// Another zone stays open that is opened before the browser says that the view was closed.
	b.click(t, `[data-zone="api"] h2 a`)
	b.until(t, "#zone-name", "api")
	b.run(t, chromedp.Evaluate(`document.querySelector("#zone").close(), document.querySelector('[data-zone="quiet"] h2 a').click()`, nil))
	b.until(t, "#key-hint", "Keys are shown as hashes", "log_key")
	b.click(t, "#zone .close")
}

// pageFits checks that nothing is wider than the screen, once the next message is drawn.
func pageFits(t *testing.T, b *browser) {
	t.Helper()
	b.holds(t, "nothing to be wider than the screen", `[document.documentElement, ...document.querySelectorAll("dialog[open]")].every((e) => e.scrollWidth <= (e === document.documentElement ? innerWidth : e.clientWidth))`)
}

// TestLivePageHasWholeTimeAxis checks that each graph has a label for each minute, and that
// none is cut.
func TestLivePageHasWholeTimeAxis(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: "rate_limit {query.k} 10/1m {\nname one\n}\nrespond ok", Admin: browsable})
	c.Get(t, "/?k=a")
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#zones", "one")
	// The labels, with where they end, as they are drawn.
	b.run(t, chromedp.Evaluate(`window.labels = []; {
		const draw = CanvasRenderingContext2D.prototype.fillText;
		CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
			if (/^\d\d:\d\d$/.test(text)) labels.push([text, (x - this.measureText(text).width / 2) / this.canvas.width, (x + this.measureText(text).width / 2) / this.canvas.width]);
			return draw.call(this, text, x, y);
		};
	} ""`, nil))
	b.holds(t, "labels", `labels.length >= 8`)
	if n := b.value(t, `new Set(labels.map((l) => l[0])).size`); n < 4 {
		t.Errorf("the axis has %v labels, want one for each minute", n)
	}
	if n := b.value(t, `labels.filter((l) => l[1] < 0 || l[2] > 1).length`); n > 0 {
		t.Errorf("%v labels are cut", n)
	}
}

// TestLivePageSaysWhatToDo checks the page when there is nothing to show, and when something
// between it and Caddy answers.
func TestLivePageSaysWhatToDo(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: `	@api path */live */zones/*/key */explain
	@login header_regexp Cookie login
	handle @login {
		route {
			respond @api "<!doctype html><title>Log in</title>" 200
			rate_limit_page
		}
	}
	handle {
		rate_limit_page /limits*
		respond ok
	}`})
	b := openBrowser(t)
	b.visit(t, c.URL+"/limits")
	b.until(t, "#zones", "This configuration has no zones", "rate_limit {client_ip} 10/s")
	b.run(t, chromedp.Evaluate(`document.cookie = "login=1; path=/"`, nil), chromedp.Navigate(c.URL+"/limits/"))
	b.until(t, "#state", "The answer is not from Diana: status 200", "where JSON was expected", "Trying again")
	b.until(t, "#zones", "The answer is not from Diana")
	b.run(t, chromedp.Evaluate(`document.cookie = "login=; path=/; max-age=0"`, nil))
	b.until(t, "#state", "live")
	b.until(t, "#zones", "This configuration has no zones")
}

// TestLivePageOnASite checks that the page works on a site behind a password, by the handler
// and through a proxy, and cannot change anything there.
func TestLivePageOnASite(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]string{
		"handler": `rate_limit_page /rate_limit/*`,
		"proxy": `handle /rate_limit/* {
		@write {
			not method GET
			not path */explain
		}
		respond @write 405
		reverse_proxy ` + harness.AdminAddress + ` {
			header_up Host ` + harness.AdminAddress + `
			header_up -Origin
			header_up -Referer
			header_up -Sec-Fetch-Mode
		}
	}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := harness.StartCaddy(t, harness.Config{Site: `	basic_auth /rate_limit/* {
		ops $2a$14$a8FK9rGDthsefNF8LiEZ7uOFYy8wOllKpoCaY4jpx0IxcCoQtJgHK
	}
	` + page + `
	@site not path /rate_limit/*
	rate_limit @site {query.k} 2/1h {
		name front
	}
	respond ok`})
			if status := c.Get(t, "/rate_limit/").Status; status != http.StatusUnauthorized {
				t.Fatalf("status %d without a password", status)
			}
			for range 3 {
				c.Get(t, "/?k=a")
			}
			b := openBrowser(t)
			b.visit(t, strings.Replace(c.URL, "//", "//ops:hiccup@", 1)+"/rate_limit/")
			b.until(t, "#zones", "front", "2/1h")
			b.until(t, "#health", "counted in this process")
			b.click(t, `[data-zone="front"] h2 a`)
			b.until(t, "#zone-facts", "this process")
			b.click(t, "#zone-key")
			b.enter(t, "#parts input", "a")
			b.click(t, "#look")
			b.until(t, "#answer", "The next request is denied")
			reset := harness.Do(t, http.MethodDelete, c.URL+"/rate_limit/zones/front/key?part=a", "", "Authorization", "Basic b3BzOmhpY2N1cA==")
			if reset.Status != http.StatusMethodNotAllowed {
				t.Errorf("a reset is answered %d", reset.Status)
			}
			if status := c.Get(t, "/?k=a").Status; status != http.StatusTooManyRequests {
				t.Errorf("status %d: the key was reset", status)
			}
			if name == "handler" && strings.Contains(b.text(t, "#answer"), "Reset") {
				t.Error("the page offers a reset that is refused")
			}
		})
	}
}
