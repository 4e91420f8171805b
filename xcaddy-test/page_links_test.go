package xcaddytest

import (
	"net"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// reload loads the page of the browser again, at the address that it has.
func (b *browser) reload(t *testing.T) {
	t.Helper()
	b.run(t, chromedp.Reload())
}

// travel goes forward by n pages of the history, back if n is negative.
func (b *browser) travel(t *testing.T, n string) {
	t.Helper()
	b.run(t, chromedp.Evaluate("history.go("+n+")", nil))
}

// address waits until the page's address has this hash.
func (b *browser) address(t *testing.T, hash string) {
	t.Helper()
	b.holds(t, "the address to end in "+hash, `decodeURIComponent(location.hash) === "`+hash+`"`)
}

// TestPageKeepsItsPlace checks that zone, range, filter, order and key are in the page's
// address: links, reload, back and forward keep them, at the admin endpoint and in a site.
func TestPageKeepsItsPlace(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: "	handle /limits/* {\nrate_limit_page\n}\nhandle {\n" + twoZones + "\n}", Admin: browsable})
	for name, address := range map[string]string{"admin": c.Admin + "/rate_limit/", "site": c.URL + "/limits/"} {
		t.Run(name, func(t *testing.T) {
			b := openBrowser(t)
			b.visit(t, address+"#zone=one&range=1h")
			b.until(t, "#zone-facts", "this process")
			b.until(t, "#zone-values", "in 1 h")
			b.click(t, "#zone-ranges button:nth-child(3)")
			b.address(t, "#zone=one&range=24h")
			b.until(t, "#zone-values", "in 24 h")
			b.untilBusy(t, c, "/?k=mine")
			c.Get(t, "/?k=mine") // the limit is used up, and counts may halve once before the key is gone
			b.until(t, "#busiest", "about")
			b.click(t, "#busiest tbody button")
			b.until(t, "#answer", "one: ")
			b.reload(t)
			b.until(t, "#answer", "one: ", "The next request is denied")
			b.run(t, chromedp.KeyEvent(kb.Escape))
			b.holds(t, "the key to close, and the zone to stay", `!document.querySelector("#key").open && document.querySelector("#zone").open`)
			b.run(t, chromedp.KeyEvent(kb.Escape))
			b.address(t, "#range=24h")
			b.holds(t, "the zone to close, and the focus to return", `!document.querySelector("#zone").open && document.activeElement.closest("[data-zone]")?.dataset.zone === "one"`)
			b.travel(t, "-1")
			b.holds(t, "the zone to be back", `document.querySelector("#zone").open && !document.querySelector("#key").open`)
			b.travel(t, "1")
			b.holds(t, "the zone to be closed again", `!document.querySelector("#zone").open`)

			// The slash focuses the filter, which is in the address, too.
			b.run(t, chromedp.Evaluate(`document.activeElement.blur()`, nil))
			b.press(t, "/")
			b.holds(t, "the filter to have the focus", `document.activeElement.id === "filter" && document.activeElement.value === ""`)
			b.run(t, input.InsertText("tw"))
			b.address(t, "#range=24h&filter=tw")
			b.reload(t)
			b.until(t, "#shown", "1 zone")
			b.holds(t, "the filter in its field", `document.querySelector("#filter").value === "tw" && document.querySelectorAll(".zone").length === 1`)
			b.run(t, chromedp.Evaluate(`location.hash = "zone=none"`, nil))
			b.until(t, "#zone-banner", "There is no such zone")
			b.sound(t, address)
		})
	}
}

// TestPageShowsRanges checks that the page shows an hour and a day, which it reads once, and
// goes on by itself; that a part of them can be zoomed to with the pointer and the keyboard; and
// that each graph has the limit.
func TestPageShowsRanges(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: twoZones, Admin: browsable})
	for range 5 {
		c.Get(t, "/?k=a")
	}
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, `[data-zone="one"]`, "5 min: 2 allowed, 3 denied")
	b.until(t, "#legend", "nearest limit")
	b.run(t, chromedp.Evaluate(`window.drawn = new Set(); {
		const draw = CanvasRenderingContext2D.prototype.fillText;
		CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
			drawn.add(text);
			return draw.call(this, text, ...more);
		};
	} ""`, nil))
	b.holds(t, "the limit in the graph", `[...drawn].some((t) => /limit 2\/1h a key = 0.00056\/s/.test(t))`)
	b.click(t, "#ranges button:nth-child(2)")
	b.until(t, `[data-zone="one"]`, "1 h: 2 allowed, 3 denied")
	b.holds(t, "labels of an hour", `[...drawn].filter((t) => /^\d\d:\d[05]$/.test(t)).length >= 4`)
	before := received(c)
	for range 4 {
		c.Get(t, "/?k=b")
	}
	b.until(t, `[data-zone="one"]`, "1 h: 4 allowed, 5 denied")
	b.until(t, "#totals", "4 in 1 h", "5 in 1 h")
	if n := received(c) - before; n != 0 {
		t.Errorf("%d requests for what the page is told anyway", n)
	}
	b.click(t, "#ranges button:nth-child(3)")
	b.until(t, `[data-zone="one"]`, "24 h: 4 allowed, 5 denied")
	b.click(t, "#ranges button:nth-child(1)")
	b.click(t, `[data-zone="one"] h2 a`)
	b.until(t, "#zone-values", "limit 2/1h a key")
	pageZooms(t, b)
	b.sound(t, c.Admin)
}

// pageZooms zooms in the view of a zone, with the pointer and with keys.
func pageZooms(t *testing.T, b *browser) {
	t.Helper()
	var at []float64
	b.run(t, chromedp.Evaluate(`(() => { const r = document.querySelector("#zone-plot .u-over").getBoundingClientRect(); return [r.x, r.y + r.height / 2, r.width]; })()`, &at))
	b.run(t, chromedp.MouseEvent(input.MousePressed, at[0]+at[2]/2, at[1], chromedp.Button("left"), chromedp.ClickCount(1)))
	for i := range 5 {
		b.run(t, chromedp.MouseEvent(input.MouseMoved, at[0]+at[2]*(0.5+float64(i)*0.1), at[1], chromedp.Button("left")))
	}
	b.run(t, chromedp.MouseEvent(input.MouseReleased, at[0]+at[2]*0.9, at[1], chromedp.Button("left"), chromedp.ClickCount(1)))
	long := `(() => { const q = new URLSearchParams(location.hash.slice(1)); return q.get("to") - q.get("from"); })()`
	b.holds(t, "a part of five minutes", long+` > 90 && `+long+` < 150`)
	b.until(t, "#zone-ranges", "Reset zoom")
	b.reload(t)
	b.until(t, "#zone-ranges", "Reset zoom")
	b.run(t, chromedp.Focus("#zone-plot"), chromedp.KeyEvent("+"))
	b.holds(t, "half of it", long+` < 80`)
	b.run(t, chromedp.KeyEvent("-"), chromedp.KeyEvent("-"))
	b.holds(t, "twice of it", long+` > 150`)
	b.click(t, "#zone-ranges button:last-child")
	b.address(t, "#zone=one")
}

// TestPageShowsManyZonesAsTable checks that more than 24 zones are a table, those that the
// filter leaves are cards again, and more rows are shown when asked for.
func TestPageShowsManyZonesAsTable(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: strings.Replace(manyZones(230), "rule 5/1s gcra burst 10\n}", "rule 1/1s gcra burst 1\nshadow\n}", 1), Admin: browsable})
	for range 3 {
		c.Get(t, "/z0000?k=a")
	}
	c.Get(t, "/z0107?k=a")
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#shown", "200 of 230 zones")
	b.until(t, ".many thead", "zone", "limits", "denied, 5 min", "would be denied")
	b.until(t, `[data-zone="z0000"]`, "shadow", "100/1m sliding_log", "66.7 %")
	b.holds(t, "200 rows, the busiest first", `document.querySelectorAll(".many tbody tr").length === 200 && document.querySelector(".many tbody tr").dataset.zone === "z0000"`)
	b.shot(t, "table")
	b.run(t, screen(390, 844, true, "dark"))
	b.shot(t, "table-phone")
	pageFits(t, b)
	b.run(t, screen(1280, 800, false, "light"))
	b.click(t, "#more button")
	b.holds(t, "all rows, and nothing more", `document.querySelectorAll(".many tbody tr").length === 230 && document.querySelector("#more").hidden`)
	b.click(t, `[data-zone="z0107"] a`)
	b.until(t, "#zone-facts", "1 allowed")
	b.run(t, chromedp.KeyEvent(kb.Escape))
	b.enter(t, "#filter", "z01")
	b.until(t, "#shown", "100 zones")
	b.run(t, input.InsertText("07"))
	b.holds(t, "a card with a graph", `document.querySelectorAll(".zone canvas").length === 1 && !document.querySelector(".many")`)
	b.sound(t, c.Admin)
	c.Kill()
	b.until(t, "#banners", "Caddy does not answer", "What is shown is how it was at", "Is Caddy running?")
	b.holds(t, "the zone that was shown", `document.querySelectorAll(".zone").length === 1 && document.querySelector("#more").hidden`)
}

// TestPageFindsKeys checks the search for a key over all zones.
func TestPageFindsKeys(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: strings.Replace(twoZones, "rate_limit {", "rate_limit {\nlog_key", 1), Admin: browsable})
	for _, path := range []string{"/?k=mine", "/?k=mine", "/two?k=other", "/pair?k=mine&l=x", "/pair?k=mine&l=x"} {
		c.Get(t, path)
	}
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.enter(t, "#filter", "mine")
	b.until(t, "#zones", "No zone has", "Look for “mine” as a key")
	b.press(t, kb.Enter)
	b.until(t, "#answer", "2 zones of 3 have counted mine", "one: mine", "The next request is denied", "pair: mine x", "Zones whose keys have other parts", "pair")
	b.holds(t, "the key in its field", `document.querySelector("#parts input").value === "mine" && document.querySelector("#key-zone").value === "*"`)
	b.click(t, `#answer [data-zone="one"] .buttons button`)
	b.until(t, "#ask", "Reset this key?", "mine", "one, in this instance only")
	b.click(t, "#ask-no")
	b.reload(t)
	b.until(t, "#answer", "2 zones of 3 have counted mine")
	b.click(t, `#answer [data-zone="pair"] a`)
	b.until(t, "#zone-name", "pair")
	b.run(t, chromedp.KeyEvent(kb.Escape))
	b.enter(t, "#filter", "-none")
	b.click(t, "#open-key")
	b.until(t, "#answer", "None of 3 zones has counted mine-none")
	b.sound(t, c.Admin)
}

// TestPageSaysWhatItLacks checks the page before the first answer, and without any rate_limit:
// it offers nothing that cannot be.
func TestPageSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := harness.StartCaddy(t, harness.Config{Site: `	route {
		reverse_proxy /limits/live ` + silent.Addr().String() + `
		rate_limit_page /limits/*
	}`, Admin: browsable})
	nothing := func(b *browser) {
		t.Helper()
		b.holds(t, "no zones to choose from", `["totals", "find", "legend", "more"].every((id) => document.getElementById(id).checkVisibility() === false)`)
	}
	b := openBrowser(t)
	b.visit(t, c.URL+"/limits/")
	b.until(t, "#zones", "Asking Caddy for its rate limits")
	nothing(b)

	bare := harness.StartCaddy(t, harness.Config{Site: "	respond ok", Admin: browsable})
	b = openBrowser(t)
	b.visit(t, bare.Admin+"/rate_limit/")
	b.until(t, "#zones", "No rate limits yet", "rate_limit {client_ip} 10/s", "caddy reload", "Ask now")
	nothing(b)
	bare.Kill()
	b.until(t, "#zones", "Caddy does not answer", "Is Caddy running?", "caddy run")
	nothing(b)
}
