package xcaddytest

import (
	"net/url"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const fleetSite = `	rate_limit {
		zone api {
			key {query.k}
			rule 10/1s gcra burst 5
		}
		zone budget {
			match path /cost
			key {query.team}
			settle {http.response.header.X-Cost}
			group_by {query.team}
			rule 1000000/1h
		}
		log_key
	}
	header X-Cost 7
	respond ok`

// TestPageShowsAllInstances checks the page of one of three instances: who they are, what they count
// together, the keys that another has met, this instance alone, and an outage.
func TestPageShowsAllInstances(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	config := harness.Config{Global: onRedis(redis, "timeout 10s"), Site: fleetSite, Admin: browsable}
	all := startMany(t, 2, config)
	config.Site = strings.Replace(fleetSite, "burst 5", "burst 6", 1)
	all = append(all, harness.StartCaddy(t, config))
	more, stop := untilStopped(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		long := "/?k=" + url.QueryEscape(strings.Repeat("long-", 30))
		harness.Pace(60, more, all[0].URL+"/?k=a", all[1].URL+"/cost?team=blue&k=b", all[2].URL+"/cost?team=red&k=elsewhere", all[1].URL+long)
	}()
	defer func() {
		stop()
		<-done
	}()
	b := openBrowser(t)
	b.visit(t, all[0].Admin+"/rate_limit/")
	b.until(t, "#only", "All 3 instances", "This instance")
	b.until(t, "#members", "(this)", "another configuration", "shared for")
	b.until(t, "#fleet-line", "3 of 3 instances, all shared, 1 differ")
	b.click(t, "#fleet-line")
	b.until(t, "#fleet-note", "counted since")
	const rates = `[...document.querySelectorAll("#members tbody tr")].map((r) => [...r.querySelectorAll("td.number")].reduce((n, c) => n + Number(c.innerText), 0))`
	b.holds(t, "rates of three instances, and their sum above", `(() => {
		const each = `+rates+`, sum = each.reduce((a, b) => a + b, 0);
		const total = ["allowed", "denied"].reduce((n, c) => n + parseFloat(document.querySelector("#totals ." + c + " dd").innerText), 0);
		return each.length === 3 && each.every((n) => n > 0) && total > 2 * each[0] && Math.abs(total - sum) < sum / 2;
	})()`)
	b.holds(t, "one range", `document.querySelectorAll("#ranges button").length === 1`)
	b.loadAxe(t)
	b.audit(t, "all instances")
	b.run(t, screen(1280, 800, false, "light"))
	b.shot(t, "fleet")
	b.run(t, screen(390, 844, true, "dark"))
	b.shot(t, "fleet-phone")
	pageFits(t, b)
	b.run(t, screen(1280, 800, false, "light"))
	b.click(t, `[data-zone="api"] a`)
	b.until(t, "#keys-of", "of all instances")
	b.until(t, "#busiest", "elsewhere", "long-long")
	b.holds(t, "a long key in one line", `[...document.querySelectorAll("#busiest tbody tr")].every((r) => r.offsetHeight < 40)`)
	b.shot(t, "fleet-zone")
	b.click(t, "#zone .close")
	b.click(t, `[data-zone="budget"] a`)
	b.until(t, "#spend", "red", "blue", "%") // this instance has spent nothing
	b.click(t, "#zone .close")
	b.click(t, "#only button:last-child")
	b.holds(t, "this instance alone, with all ranges", `document.querySelector("#fleet").hidden && document.querySelectorAll("#ranges button").length === 3`)
	b.click(t, `[data-zone="api"] a`)
	b.until(t, "#keys-of", "of this instance")
	b.until(t, "#busiest", "a")
	b.holds(t, "no key of another instance", `!document.querySelector("#busiest").innerText.includes("elsewhere")`)
	b.click(t, "#zone .close")
	b.address(t, "#only=this")
	b.reload(t)
	b.holds(t, "the choice to be kept", `document.querySelector("#only [aria-pressed=true]")?.innerText === "This instance"`)
	b.click(t, "#only button")
	b.until(t, "#members", "(this)")
	redis.Kill(t)
	b.until(t, "#fleet-line", "1 of 3 instances, 1 alone")
	b.until(t, "#fleet-note", "2 instances are in no sum", "This instance sees only itself")
	b.until(t, "#members", "alone", "missing, last seen")
	b.sound(t, all[0].Admin)
}
