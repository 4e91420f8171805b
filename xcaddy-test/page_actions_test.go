package xcaddytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const twoZones = `	rate_limit {
		zone one {
			key {query.k}
			rule 2/1h
		}
		zone two {
			match path /two
			key {query.k}
			rule 1/1h
		}
		zone pair {
			match path /pair
			key {query.k} {query.l}
			rule 1/1h
		}
	}
	respond ok`

// TestPageResetsWhatItShows checks that a reset asks, says what it does and to whom, and
// resets the key that is on screen, whatever was looked at in another zone before, or is half
// typed in the form.
func TestPageResetsWhatItShows(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: twoZones, Admin: browsable})
	spend := func() {
		t.Helper()
		for _, path := range []string{"/?k=mine", "/?k=mine", "/?k=other", "/?k=other", "/two?k=third", "/pair?k=p&l=q"} {
			c.Get(t, path)
		}
	}
	spend()
	denied := func(path string) bool { return c.Get(t, path).Status == 429 }
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#zones", "one", "two")
	look := func(zone, key string) {
		t.Helper()
		b.click(t, `[data-zone="`+zone+`"] h2 a`)
		b.until(t, "#zone-name", zone)
		b.until(t, "#zone-facts", "this process") // buttons stay where they are from now on
		b.click(t, "#zone-key")
		b.enter(t, "#parts input", key)
		b.run(t, chromedp.KeyEvent(kb.Enter))
		b.until(t, "#answer", zone+": "+key, "The next request is denied")
	}
	look("one", "mine")
	b.click(t, "#key .close")
	b.click(t, "#zone .close")
	look("two", "third")
	// The form has another key by now: the answer is still that of third.
	b.run(t, chromedp.Focus("#parts input"))
	b.enter(t, "#parts input", "x")
	b.click(t, "#answer .buttons button")
	b.until(t, "#ask", "Reset this key?", "third", "two, in this instance only", "cannot be undone")
	b.shot(t, "ask")
	b.run(t, chromedp.KeyEvent(kb.Escape))
	if !denied("/two?k=third") || !denied("/?k=mine") {
		t.Error("a reset that was called off has reset a key")
	}
	b.click(t, "#answer .buttons button")
	b.until(t, "#ask", "third")
	b.click(t, "#ask-yes")
	b.until(t, "#answer", "Reset in this instance", "The next request passes")
	if denied("/two?k=third") {
		t.Error("the key on screen was not reset")
	}
	if !denied("/?k=mine") || !denied("/?k=other") || !denied("/pair?k=p&l=q") {
		t.Error("another key was reset")
	}

	// In all zones that count by the same key.
	c.Get(t, "/two?k=mine")
	b.click(t, "#key .close")
	b.click(t, "#zone .close")
	b.click(t, "#open-key")
	b.run(t, chromedp.SetValue("#key-zone", "one"), chromedp.Evaluate(`document.querySelector("#key-zone").dispatchEvent(new Event("change"))`, nil))
	b.until(t, "#key-all-text", "also in the 1 other zone with this key")
	b.enter(t, "#parts input", "mine")
	b.click(t, "#key-all")
	b.click(t, "#look")
	b.until(t, "#answer", "one: mine", "two: mine")
	b.click(t, "#answer .buttons button:nth-child(2)")
	b.until(t, "#ask", "one, in this instance only", "two, in this instance only")
	b.click(t, "#ask-yes")
	b.until(t, "#answer", "Reset in this instance")
	if denied("/?k=mine") {
		t.Error("the key was not reset in all zones")
	}
	if !denied("/?k=other") {
		t.Error("another key was reset")
	}
	b.sound(t, c.Admin)
}

// TestPageExplains checks that the page explains a described request, and says what is wrong
// in its description.
func TestPageExplains(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: strings.Replace(twoZones, "key {query.k}", "key {header.X-Account}", 1), Admin: browsable})
	for range 2 {
		c.Get(t, "/", "X-Account", "7")
	}
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#zones", "one")
	b.click(t, "#open-explain")
	b.enter(t, "#explain [name=url]", c.URL+"/two?k=a")
	b.enter(t, "#explain [name=client_ip]", "192.0.2.1")
	b.enter(t, "#explain [name=headers]", "X-Account 7")
	b.click(t, "#explain-form button.main")
	b.until(t, "#explanation", "is no header", "X-Account: 7")
	b.run(t, chromedp.SetValue("#explain [name=headers]", "X-Other: 7"))
	b.click(t, "#explain-form button.main")
	b.until(t, "#explanation", "one: 192.0.2.1", "counted under the client's address 192.0.2.1, because {http.request.header.X-Account} is empty (key_missing client_ip)")
	b.run(t, chromedp.SetValue("#explain [name=headers]", "X-Account: 7"))
	b.click(t, "#explain-form button.main")
	b.until(t, "#explanation", "It would be denied by rule 1 of zone one, and would pass in", "two: a", "The next request passes", "do not match: pair")
	b.shot(t, "explain")
	b.click(t, "#explanation .buttons button")
	b.until(t, "#answer", "one: 7", "The next request is denied")
	b.run(t, chromedp.KeyEvent(kb.Escape), chromedp.SetValue("#explain [name=client_ip]", "here"))
	b.click(t, "#explain-form button.main")
	b.until(t, "#explanation", "client_ip", "want an IP address")
	b.sound(t, c.Admin)
}

// TestPageChangesRules checks that the page changes rules at the source: it shows the
// difference, sends what it showed, and nothing if the document is another by then, or would be
// rejected.
func TestPageChangesRules(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	all := startMany(t, 2, harness.Config{
		Global: onRedisWith(redis, "rules redis diana:rules", "timeout 10s"), Admin: browsable,
		Site: "	rate_limit {\nzone api {\nkey {query.k}\nrule 2/1h name hourly\nrule 50/1m gcra burst 60 block 10m\nrule 600/1h token_bucket step 1m\n}\n}\n	respond ok",
	})
	push(t, redis, `{"zones": {"other": {"shadow": true}}}`)
	document := func() string { return redis.Get(t.Context(), "diana:rules").Val() }
	c := all[0]
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#health", "rules from redis", "zones unknown here: other")
	b.click(t, `[data-zone="api"] h2 a`)
	b.until(t, "#zone-facts", "shared by")
	b.click(t, "#zone-change button")
	b.until(t, "#rules-form", "per 1h, sliding_log (hourly)", "per 1m, gcra burst 60 block 10m", "per 1h, token_bucket step 1m")
	limit := func(n string) {
		t.Helper()
		b.run(t, chromedp.Focus("#rules-form .limit"), chromedp.SetValue("#rules-form .limit", ""))
		b.enter(t, "#rules-form .limit", n)
		b.click(t, "#rules-form button.main")
	}

	// Rejected before it is sent: the burst of the second rule is less than the cost it needs.
	limit("9007199254740991")
	b.until(t, "#rules-answer", "Rejected")
	b.holds(t, "nothing to send", `document.querySelector("#rules-answer button.main").disabled`)
	limit("5")
	b.until(t, "#rules-answer", "would take the document", "other", `+     "api": {`, `+           "limit": 5,`, `+           "window": "1h"`, `+             "burst": 60`, `+           "block": "10m"`, `+             "step": "1m"`)
	if got := document(); strings.Contains(got, "api") {
		t.Errorf("sent before it was confirmed: %s", got)
	}
	b.until(t, "#rules-answer .short", "api: 2/1h → 5/1h")
	b.shot(t, "rules")
	push(t, redis, `{"zones": {"another": {}}}`)
	b.click(t, "#rules-answer button.main")
	b.until(t, "#rules-answer", "Nothing was written", "somebody else changed the rules")
	if got := document(); got != `{"zones": {"another": {}}}` {
		t.Errorf("the document of somebody else was replaced: %s", got)
	}
	b.click(t, "#rules-answer .problem button")
	b.until(t, "#rules-form", "hourly")
	limit("5")
	b.until(t, "#rules-answer", "another", `+           "limit": 5,`)
	b.click(t, "#rules-answer button.main")
	b.until(t, "#rules-answer", "Written")
	if got := document(); !strings.Contains(got, `"another"`) || !strings.Contains(got, `"limit": 5`) {
		t.Errorf("%s", got)
	}
	everywhere(t, all, "api", 5, harness.Patience)
	b.click(t, "#rules .close")
	b.until(t, "#zone-rules", "5/1h")
	b.until(t, "#zone-marks", "rules from redis changed")

	// In shadow, off, and as configured again.
	for _, step := range []struct{ box, show, short, state string }{
		{"#rules-shadow", `"shadow": true`, "api: denies → only reports", "shadow: reports"},
		{"#rules-enabled", `"enabled": false`, "api: on → off", "off: all requests pass"},
		{"#rules-forget", `-     "api": {`, "api: to what each instance is configured with: 2/1h, ", "on"},
	} {
		b.click(t, "#zone-change button")
		b.until(t, "#rules-form", "hourly")
		b.click(t, step.box)
		if step.box == "#rules-forget" {
			b.holds(t, "the fields do not count", `[...document.querySelectorAll("#rules-form .limit, #rules-enabled, #rules-shadow")].every((i) => i.disabled)`)
		}
		b.click(t, "#rules-form button.main")
		b.until(t, "#rules-answer", step.show)
		b.until(t, "#rules-answer .short", step.short)
		b.click(t, "#rules-answer button.main")
		b.until(t, "#rules-answer", "Written")
		b.click(t, "#rules .close")
		b.until(t, "#zone-facts", step.state)
	}
	everywhere(t, all, "api", 2, harness.Patience)
	pageEdits(t, b)
	pageEditsText(t, b, document)
	b.click(t, "#zone .close")
	pageSwitchesAllZones(t, b, redis, c)
	pageWritesLostDocument(t, b, redis)
	redis.Del(t.Context(), "diana:rules") // a document has no time to live
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) > 1 { // Chromium reports the answer 412
		t.Errorf("errors of the page: %v", b.problems)
	}
}

// pageEdits changes a rate, a burst and a block as the command line does, sees who did so, and
// undoes it.
func pageEdits(t *testing.T, b *browser) {
	t.Helper()
	const edit = "2 60/1m burst 70 block 0"
	b.run(t, chromedp.SetValue("#zone-change select", "2"))
	b.enter(t, "#zone-change input", strings.TrimPrefix(edit, "2 "))
	b.click(t, "#zone-change form button")
	b.until(t, "#rules-answer", "would take the document", "set api "+edit, `+             "burst": 70`, `+           "limit": 60`)
	b.enter(t, "#said-who", "ann")
	b.click(t, "#rules-answer button.main")
	b.until(t, "#rules-answer", "Written")
	b.click(t, "#rules .close")
	b.until(t, "#zone-rules", "60/1m")
	b.click(t, "#zone-change button:nth-of-type(2)")
	b.until(t, "#rules-answer", "ann", "set api "+edit)
	b.click(t, "#rules-answer .buttons button")
	b.until(t, "#rules-answer", `-             "burst": 70`)
	b.click(t, "#rules-answer button.main")
	b.until(t, "#rules-answer", "Written")
	b.click(t, "#rules .close")
	b.until(t, "#zone-rules", "50/1m")
}

// pageEditsText writes overrides of a zone, which have no form, and none that are invalid.
func pageEditsText(t *testing.T, b *browser, document func() string) {
	t.Helper()
	text := func(key, want string) {
		t.Helper()
		b.run(t, chromedp.SetValue("#rules-text", `{"zones": {"another": {}, "api": {"overrides": [{"key": `+key+`, "rules": [{"limit": 9, "window": "1h"}]}]}}}`))
		b.click(t, "#rules-form button.main")
		b.until(t, "#rules-answer", want)
	}
	b.click(t, "#zone-change button:nth-of-type(3)")
	b.until(t, "#rules-form", "holds on all instances")
	text(`["gold"`, "JSON")
	text(`["gold", "two"]`, "Rejected: /zones/api/overrides/0")
	text(`["gold"]`, `"limit": 9,`)
	b.shot(t, "document")
	b.click(t, "#rules-answer button.main")
	b.until(t, "#rules-answer", "Written")
	b.click(t, "#rules .close")
	if got := document(); !strings.Contains(got, `"gold"`) {
		t.Errorf("%s", got)
	}
	b.click(t, "#zone-change button:nth-of-type(2)")
	b.until(t, "#rules-answer", "rules edit")
	b.click(t, "#rules-answer .buttons button")
	b.until(t, "#rules-answer", `"gold"`)
	b.click(t, "#rules-answer button.main")
	b.until(t, "#rules-answer", "Written")
	b.click(t, "#rules .close")
}

// pageSwitchesAllZones puts all zones in shadow and off, and back.
func pageSwitchesAllZones(t *testing.T, b *browser, redis *harness.Redis, c *harness.Caddy) {
	t.Helper()
	for range 3 {
		c.Get(t, "/?k=switched")
	}
	status := func(want int) {
		t.Helper()
		harness.Until(t, harness.Patience, fmt.Sprint("status ", want), func() bool { return c.Get(t, "/?k=switched").Status == want })
	}
	status(429)
	for _, step := range []struct {
		box, show, banner string
		status            int
	}{
		{"#rules-shadow", `"shadow": true`, "", 200},
		{"#rules-enabled", `"enabled": false`, "All zones are off", 200},
		{"#rules-enabled", `-       "enabled": false`, "", 200},
		{"#rules-shadow", `-     "*": {`, "", 429},
	} {
		b.click(t, "#open-every")
		b.until(t, "#rules-title", "Switch all zones")
		b.until(t, "#rules-form", "For an incident")
		b.click(t, step.box)
		b.click(t, "#rules-form button.main")
		b.until(t, "#rules-answer", "would take the document", step.show)
		b.click(t, "#rules-answer button.main")
		b.until(t, "#rules-answer", "Written")
		b.click(t, "#rules .close")
		if step.banner != "" {
			b.until(t, "#banners", step.banner)
		} else {
			b.holds(t, "no banner", `document.querySelector("#banners").innerText === ""`)
		}
		status(step.status)
		if got := redis.Get(t.Context(), "diana:rules").Val(); !strings.Contains(got, `"another"`) {
			t.Errorf("what the document says of others is gone: %s", got)
		}
	}
}

// pageWritesLostDocument checks that a change after Redis has lost the document begins with the
// one in force.
func pageWritesLostDocument(t *testing.T, b *browser, redis *harness.Redis) {
	t.Helper()
	redis.Del(t.Context(), "diana:rules")
	redis.Publish(t.Context(), "diana:rules", "")
	b.until(t, "#banners", "Redis has lost the document.", "Its rules stay in force; write it again: Change these rules on the page, or GET and PUT /rate_limit/rules")
	b.until(t, "#health", "document lost")
	b.holds(t, "the loss is announced", `document.querySelector("#announce").textContent.includes("Redis has lost the document.")`)
	b.click(t, "#open-every")
	b.until(t, "#rules-form", "Redis has lost the document")
	b.click(t, "#rules-form button.main")
	b.until(t, "#rules-answer", `+     "another": {}`)
	b.click(t, "#rules-answer button.main")
	b.until(t, "#rules-answer", "Written")
	if got := redis.Get(t.Context(), "diana:rules").Val(); !strings.Contains(got, `"another"`) {
		t.Errorf("%s", got)
	}
	b.click(t, "#rules .close")
	b.holds(t, "no banner", `document.querySelector("#banners").innerText === ""`)
}
