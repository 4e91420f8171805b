package xcaddytest

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// small returns the controls of the page that are seen and smaller than 44 by 44 pixels, which fingers
// miss. A control in a label is as large as the label, and the link of a card as the card.
const small = `[...document.querySelectorAll((document.querySelector("dialog[open]") ? "dialog[open]:last-of-type " : "") + ":is(button, select, summary, input, a)")].filter((e) => {
	if (!e.checkVisibility({visibilityProperty: true}) || document.querySelector("dialog[open]") && !e.closest("dialog[open]")) return false;
	const r = (e.closest("label:has([type=checkbox])") || e.closest(".zone h2 a") && e.closest(".zone") || e).getBoundingClientRect();
	return r.width > 1 && (r.width < 43.5 || r.height < 43.5);
}).map((e) => e.outerHTML.slice(0, 80)).join("\n")`

// fingersFit checks that what is touched on a phone is large enough.
func (b *browser) fingersFit(t *testing.T, where string) {
	t.Helper()
	var list string
	b.run(t, chromedp.Evaluate(small, &list))
	if list != "" {
		t.Errorf("%s: too small for a finger:\n%s", where, list)
	}
}

// TestPageOnAPhone checks that the first graph is on the first screen of a phone, also with several
// instances, and that everything that is touched is large enough.
func TestPageOnAPhone(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	all := startMany(t, 3, harness.Config{Global: onRedisWith(redis, "rules redis diana:rules", "timeout 10s"), Site: stated, Admin: browsable})
	b := openBrowser(t)
	b.visit(t, all[0].Admin+"/rate_limit/")
	b.run(t, screen(390, 844, true, "light"))
	b.until(t, "#fleet-line", "3 of 3 instances, all shared")
	b.holds(t, "the first graph on the first screen", `(() => { const r = document.querySelector(".zone canvas")?.getBoundingClientRect(); return scrollY === 0 && r && r.bottom > 0 && r.bottom <= innerHeight; })()`)
	b.fingersFit(t, "overview")
	pageFits(t, b)
	b.click(t, "#open-tools")
	b.holds(t, "the filter", `document.querySelector("#filter").checkVisibility() && document.querySelector("#open-tools").ariaExpanded === "true"`)
	b.fingersFit(t, "tools")
	pageFits(t, b)
	b.click(t, "#health-line")
	b.click(t, "#fleet-line")
	b.until(t, "#members", "(this)")
	pageFits(t, b)
	b.untilKeyed(t, all[0], "api")
	b.fingersFit(t, "zone")
	b.click(t, "#busiest tbody button")
	b.until(t, "#answer", "Block for")
	b.fingersFit(t, "key")
	pageFits(t, b)
	b.sound(t, all[0].Admin)
}

// untilKeyed opens a zone and waits until the page knows a key of it.
func (b *browser) untilKeyed(t *testing.T, c *harness.Caddy, zone string) {
	t.Helper()
	b.click(t, `[data-zone="`+zone+`"] h2 a`)
	harness.Until(t, harness.Patience, "a key", func() bool {
		c.Get(t, "/api?k=web")
		return strings.Contains(b.text(t, "#busiest"), "web")
	})
}

// TestPageCollects checks that the page of several instances does not show what it does not know yet
// as nothing: until the first sums it says so, and it draws this instance's past.
func TestPageCollects(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	all := startMany(t, 2, harness.Config{Global: onRedis(redis, "timeout 10s"), Site: fleetSite, Admin: browsable})
	more, stop := untilStopped(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		harness.Pace(40, more, all[0].URL+"/?k=a", all[1].URL+"/?k=b", all[1].URL+"/cost?team=blue&k=c")
	}()
	defer func() {
		stop()
		<-done
	}()
	harness.Until(t, harness.Patience, "both instances to see each other", func() bool {
		return strings.Contains(harness.Do(t, "GET", all[0].Admin+"/rate_limit/zones", "").Body, `"instances": 2`) ||
			strings.Contains(harness.Do(t, "GET", all[0].Admin+"/rate_limit/zones", "").Body, `"instances":2`)
	})
	b := openBrowser(t)
	b.visit(t, "about:blank")
	// What the page shows at each of its changes, from its start.
	b.run(t, chromedp.Navigate(all[0].Admin+"/rate_limit/"))
	b.run(t, chromedp.Evaluate(`window.seen = []; {
		const look = () => { const e = document.querySelector("#totals .allowed dd"); if (e && seen.at(-1) !== e.innerText) seen.push(e.innerText); };
		new MutationObserver(look).observe(document.querySelector("#totals"), {childList: true, subtree: true});
		look();
		window.texts = new Set();
		const draw = CanvasRenderingContext2D.prototype.fillText;
		CanvasRenderingContext2D.prototype.fillText = function (text, ...more) { texts.add(text); return draw.call(this, text, ...more); };
	} ""`, nil))
	b.holds(t, "what all allow", `/^[1-9]/.test(document.querySelector("#totals .allowed dd").innerText)`)
	b.holds(t, "first that it collects, and never nothing", `seen[0].includes("collecting") && seen.every((s) => !s.startsWith("0/s"))`)
	b.holds(t, "a word on what is drawn before", `[...texts].some((s) => s.startsWith("this "))`)
	b.until(t, "#legend", "this instance alone, before all were counted")
	b.until(t, `[data-zone="budget"]`, "units in ", "/s now")
	// In the view of a zone, all numbers are of all instances.
	b.click(t, `[data-zone="budget"] a`)
	b.until(t, "#zone-facts", "All instances, since each started", "by their responses", "in this instance")
	b.sound(t, all[0].Admin)
}

// TestPageKnowsNothingWithoutCaddy checks that no lamp stays green when Caddy is gone.
func TestPageKnowsNothingWithoutCaddy(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	c := harness.StartCaddy(t, harness.Config{Global: onRedis(redis, "timeout 10s"), Site: stated, Admin: browsable})
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#health-line", "All well", "redis shared")
	b.click(t, "#health-line")
	const green = `[...document.querySelectorAll(".chip.good")].map((e) => getComputedStyle(e).borderLeftColor).concat([...document.querySelectorAll(".lamp")].map((e) => getComputedStyle(e).backgroundColor)).filter((c) => c === "rgb(20, 113, 63)").length`
	b.holds(t, "green lamps", green+" > 1")
	c.Kill()
	b.until(t, "#health-line", "Not known now", "what is below is of")
	b.holds(t, "no green lamp", green+" === 0")
	b.loadAxe(t)
	b.audit(t, "without Caddy")
	c.Restart(t)
	b.until(t, "#health-line", "All well")
}

// TestPageListsExceptions checks that a frequent key can be blocked from where it is listed, that
// the page then says who did it, until when and why, what the key's state is, and ends it; and that it says
// what is missing where keys are hashes, or rules cannot be written.
func TestPageListsExceptions(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	c := harness.StartCaddy(t, harness.Config{Global: onRedisWith(redis, "rules redis diana:rules", "timeout 10s"), Site: stated, Admin: browsable})
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#zones", "api")
	b.untilKeyed(t, c, "api")
	b.click(t, "#busiest tbody button")
	b.until(t, "#answer", "api: web", "Block for", "Allow for")
	b.click(t, "#answer .buttons:last-child button")
	b.until(t, "#rules-answer", "block api web 1h", `"limit": 0`)
	b.enter(t, "#said-who", "ann")
	b.enter(t, "#said-why", "a scraper")
	b.click(t, "#rules-answer button.main")
	b.until(t, "#rules-answer", "Written")
	b.click(t, "#rules .close")
	b.until(t, "#exceptions", "web", "blocked", "ann", "a scraper", "End")
	b.click(t, "#look")
	b.until(t, "#answer", "The next request is denied: an exception blocks the key", "until ")
	b.holds(t, "no bar beside nothing", `[...document.querySelectorAll("#answer .meter i")].every((e) => e.getBoundingClientRect().width === 0)`)
	if text := b.text(t, "#answer"); strings.Contains(text, "never") || strings.Contains(text, "by rule") {
		t.Errorf("the answer says %q", text)
	}
	b.shot(t, "exception")
	b.click(t, "#key .close")
	b.click(t, "#zone .close")
	b.until(t, `[data-zone="api"]`, "1 exception")
	b.click(t, "#open-exceptions")
	b.until(t, "#rules-answer", "api", "web", "blocked", "ann", "a scraper")
	b.loadAxe(t)
	b.audit(t, "exceptions")
	b.click(t, "#rules-answer tbody button")
	b.until(t, "#rules-answer", "unblock api web")
	b.click(t, "#rules-answer button.main")
	b.until(t, "#rules-answer", "Written")
	b.click(t, "#rules .close")
	b.holds(t, "no exception", `document.querySelector("#open-exceptions").hidden`)
	redis.Del(t.Context(), "diana:rules") // a document has no time to live
	b.sound(t, c.Admin)

	for name, want := range map[string]struct{ global, site, says string }{
		"hashes":   {onRedisWith(redis, "rules redis diana:rules", "timeout 10s", "key_prefix h"), strings.Replace(stated, "log_key", "", 1), "its handler has no log_key"},
		"no rules": {"", stated, "add rules file <path>"},
	} {
		c := harness.StartCaddy(t, harness.Config{Global: want.global, Site: want.site, Admin: browsable})
		b := openBrowser(t)
		b.visit(t, c.Admin+"/rate_limit/")
		b.until(t, "#zones", "api")
		b.click(t, `[data-zone="api"] h2 a`)
		harness.Until(t, harness.Patience, "a key of "+name, func() bool {
			c.Get(t, "/api?k=web")
			return strings.Contains(b.text(t, "#busiest"), "about")
		})
		b.click(t, "#busiest tbody button")
		b.until(t, "#answer", want.says)
	}
}

// TestPageDrawsLimitsApart checks that the label of a limit is above the curves, says what the curves
// are, and that few zones use the whole width.
func TestPageDrawsLimitsApart(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: "rate_limit {query.k} 2/1s {\nname one\n}\nrespond ok", Admin: browsable})
	more, stop := untilStopped(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		harness.Pace(10, more, c.URL+"/?k=a", c.URL+"/?k=b", c.URL+"/?k=c")
	}()
	defer func() {
		stop()
		<-done
	}()
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#zones", "one")
	b.run(t, chromedp.Evaluate(`window.labels = []; {
		const draw = CanvasRenderingContext2D.prototype.fillText;
		CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
			if (/2\/1s/.test(text)) labels.push([text, y / devicePixelRatio, this.canvas.getBoundingClientRect().top, document.querySelector(".zone .u-over").getBoundingClientRect().top]);
			return draw.call(this, text, x, y);
		};
	} ""`, nil))
	b.holds(t, "labels above the graph", `labels.length > 2 && labels.every(([text, y, canvas, graph]) => text.endsWith("a key; curves: all keys") && canvas + y < graph)`)
	b.holds(t, "one zone over the whole width", `document.querySelector(".zone").getBoundingClientRect().width > document.querySelector("main").clientWidth - 5`)
	b.until(t, "#host", "127.0.0.1:")
	b.sound(t, c.Admin)
}
