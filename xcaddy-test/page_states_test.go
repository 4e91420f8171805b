package xcaddytest

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const stated = `	rate_limit {
		zone api {
			match path /api
			key {query.k}
			rule 20/1s gcra burst 40
			rule 3000/1m
		}
		zone login {
			match path /login
			key {query.k}
			rule 5/1m block 10m
		}
		zone search {
			match path /search
			key {query.k}
			rule 30/1m
			shadow
		}
		log_key
	}
	respond ok`

// both looks at a state in the dark on a desktop, and in the light on a phone, where it
// fits.
func (b *browser) both(t *testing.T, name string) {
	t.Helper()
	b.run(t, screen(1280, 800, false, "dark"))
	b.shot(t, name+"-dark")
	b.run(t, screen(390, 844, true, "light"))
	b.shot(t, name+"-phone")
	pageFits(t, b)
	b.run(t, screen(1280, 800, false, "light"))
}

// TestPageStates shows the page in each state that an operator meets: live, with blocked keys,
// with a change before it is sent, in an outage, without zones, and without Caddy.
func TestPageStates(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	c := harness.StartCaddy(t, harness.Config{Global: onRedisWith(redis, "rules redis diana:rules", "timeout 10s"), Site: stated, Admin: browsable})
	more, stop := untilStopped(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		harness.Pace(60, more, c.URL+"/api?k=web", c.URL+"/api?k=web", c.URL+"/api?k=mobile", c.URL+"/search?k=web", c.URL+"/login?k=mallory", c.URL+"/login?k=eve", c.URL+"/login?k=trudy")
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#zones", "api", "login", "3 keys blocked", "search", "shadow")
	b.until(t, "#health", "redis shared for", "1 instance", "no document yet")
	history := 100.0
	if shots != "" {
		history = 1500 // a minute
	}
	harness.Until(t, harness.Patience, "some history", func() bool {
		return b.value(t, `Number(document.querySelector('[data-zone="api"]').innerText.replace(/,/g, "").match(/(\d+) allowed/)?.[1] || 0)`) > history
	})
	b.both(t, "state-live")

	b.click(t, `[data-zone="login"] h2 a`)
	b.until(t, "#blocked", "eve blocked for", "mallory blocked for", "trudy blocked for")
	b.until(t, "#zone-facts", "Blocked keys", "3 that this instance knows of")
	b.both(t, "state-blocked")
	b.click(t, "#zone .close")

	b.click(t, "#open-every")
	b.until(t, "#rules-form", "For an incident")
	b.click(t, "#rules-shadow")
	b.click(t, "#rules-form button.main")
	b.until(t, "#rules-answer", "would take the document", `"shadow": true`)
	b.both(t, "state-change")
	b.click(t, "#rules .close")

	redis.Kill(t)
	b.until(t, "#banners", "redis has been away", "decided locally, by", "The configured rules are in force")
	b.until(t, "#health", "1 instance when it was last reached")
	b.both(t, "state-outage")
	redis.Start(t)
	b.until(t, "#health", "redis shared for")

	empty := harness.StartCaddy(t, harness.Config{Site: "	rate_limit_page /limits*\n	respond ok"})
	b.run(t, chromedp.Navigate(empty.URL+"/limits/"))
	b.until(t, "#zones", "This configuration has no zones", "rate_limit {client_ip} 10/s")
	b.both(t, "state-empty")
	empty.Kill()
	b.until(t, "#state", "Caddy does not answer", "Trying again", "Shown is the state of")
	b.until(t, "#zones", "Nothing can be shown now", "Is Caddy running?", "caddy run", "Ask now")
	b.both(t, "state-error")
	b.until(t, "#zones", "Nothing can be shown now") // after it was drawn in other sizes
}

// TestPageCountsBlockedKeys checks that a zone shows the keys that it blocks, and one none whose name
// every object of JavaScript has.
func TestPageCountsBlockedKeys(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: `	rate_limit {
		zone login {
			key {query.k}
			rule 1/1h block 1h
		}
		zone constructor {
			rule 1000/1h
		}
	}
	respond ok`, Admin: browsable})
	c.Get(t, "/?k=eve")
	c.Get(t, "/?k=eve")
	b := openBrowser(t)
	b.visit(t, c.Admin+"/rate_limit/")
	b.until(t, "#zones", "login", "1 key blocked", "constructor")
	if n := b.value(t, `document.querySelectorAll('[data-zone="constructor"] .badge').length`); n != 0 {
		t.Errorf("zone constructor has %v badges, want none: it blocks nobody", n)
	}
	b.sound(t, c.Admin)
}
