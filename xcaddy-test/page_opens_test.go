package xcaddytest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// opens is the line of the documentation that lets a browser open the page, for a port.
func opens(port string) string {
	return fmt.Sprintf(`origins localhost:%[1]s 127.0.0.1:%[1]s [::1]:%[1]s ""`, port)
}

// TestPageOpensByEachName checks that the line of the documentation opens the page by each name that a
// machine has for itself, and that without it Caddy answers 403 with the words that the documentation has.
func TestPageOpensByEachName(t *testing.T) {
	t.Parallel()
	port := regexp.MustCompile(`:(\d+)$`)
	site := harness.Config{Site: "rate_limit {query.k} 10/1m {\nname one\n}\nrespond ok"}
	c := harness.StartCaddy(t, site)
	typed := func(host string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Admin+"/rate_limit/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host + port.FindString(c.Admin)
		req.Header.Set("Sec-Fetch-Mode", "navigate") // as browsers send it of an address that is typed
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if r := typed("localhost"); r.StatusCode != http.StatusForbidden {
		t.Errorf("status %d without origins, want 403", r.StatusCode)
	}
	c.WaitLog(t, harness.Patience, "client is not allowed to access from origin ''") // as docs/troubleshooting.md has it
	site.Admin = opens(harness.AdminPort)
	c = harness.StartCaddy(t, site)
	b := openBrowser(t)
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
		if r := typed(host); r.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", host, r.StatusCode)
		}
	}
	for _, host := range []string{"localhost", "127.0.0.1"} { // Caddy listens at this address
		b.visit(t, "http://"+host+port.FindString(c.Admin)+"/rate_limit/")
		b.until(t, "#zones", "one", "10/1m")
	}
}

// TestEveryExampleOpensThePage checks that each example, and each configuration in the documents that
// begin with one, has the line that lets a browser open the page, if it has or shows the page.
func TestEveryExampleOpensThePage(t *testing.T) {
	t.Parallel()
	origins, port := regexp.MustCompile(`origins [^\n\x60|#]*""[^\n\x60|#]*`), regexp.MustCompile(`localhost:(\S+)`)
	var files []string
	for _, pattern := range []string{"../examples/*/Caddyfile", "../examples/*/README.md", "../README.md", "../docs/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	lines := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "Caddyfile") && strings.Contains(string(text), "/rate_limit/") && !origins.Match(text) {
			t.Errorf("%s shows the page, and its admin endpoint answers 403", file)
		}
		for _, line := range origins.FindAllString(string(text), -1) {
			lines++
			if m := port.FindStringSubmatch(line); m == nil || strings.TrimSpace(line) != opens(m[1]) {
				t.Errorf("%s: %s, want such as %s", file, line, opens("2019"))
			}
		}
	}
	if lines < 8 {
		t.Errorf("only %d lines of origins", lines)
	}
}

// hostilePage is a page of another origin that tries to change the configuration of the admin endpoint at
// %[1]s in each way that browsers have, and then to open it and to read it.
const hostilePage = `<!doctype html><title>hostile</title><iframe id="opened" name="opened"></iframe><form id="form" method="post" target="opened" enctype="text/plain" action="%[1]s/load"><input name='{"apps": {}, "x": "' value='"}'></form><script>
window.done = (async () => {
	const target = "%[1]s", read = [];
	for (const mode of ["cors", "no-cors", "same-origin"]) for (const referrerPolicy of ["no-referrer", "origin", "unsafe-url"]) for (const [method, path] of [["POST", "/load"], ["POST", "/stop"], ["DELETE", "/config/apps"], ["GET", "/config/"]]) {
		try {
			const r = await fetch(target + path, {method, mode, referrerPolicy, body: method === "POST" ? new Blob(["{}"]) : undefined});
			if (r.type !== "opaque") read.push(method + path + await r.text());
		} catch {}
	}
	for (const policy of ["no-referrer", "unsafe-url"]) {
		const meta = Object.assign(document.createElement("meta"), {name: "referrer", content: policy});
		document.head.append(meta);
		document.querySelector("#form").submit();
		await new Promise((done) => { document.querySelector("#opened").onload = done; setTimeout(done, 2000); });
		const sandboxed = document.createElement("iframe");
		sandboxed.sandbox = "allow-scripts allow-forms";
		sandboxed.srcdoc = '<form method="post" enctype="text/plain" action="' + target + '/load"><input name="{}"></form><scr' + 'ipt>fetch("' + target + '/load", {method: "POST", mode: "cors", referrerPolicy: "no-referrer", body: new Blob(["{}"])}).catch(() => 0).then(() => document.forms[0].submit())</scr' + 'ipt>';
		document.body.append(sandboxed);
		await new Promise((done) => { sandboxed.onload = () => setTimeout(done, 500); setTimeout(done, 3000); });
	}
	return JSON.stringify(read);
})();
</script>`

// TestOriginsWithNone checks what docs/security.md says of the "" in origins: with a browser on the machine, a
// page of another origin can neither change nor read anything at the admin endpoint.
func TestOriginsWithNone(t *testing.T) {
	t.Parallel()
	c := harness.StartCaddy(t, harness.Config{Site: "rate_limit {query.k} 10/1m {\nname one\n}\nrespond ok", Admin: opens(harness.AdminPort)})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, hostilePage, c.Admin)
	}))
	defer other.Close()
	before := c.Running(t)
	b := openBrowser(t)
	b.visit(t, other.URL)
	var read string
	b.run(t, chromedp.Evaluate("done", &read, awaited))
	if read != "[]" {
		t.Errorf("a page of another origin reads %s", read)
	}
	if after := c.Running(t); after != before {
		t.Errorf("a page of another origin changed the configuration: %s", after)
	}
	if tries := strings.Count(c.Log(), `"method":"POST"`); tries < 3 {
		t.Errorf("only %d POST arrived: the page tried nothing", tries)
	}
	if harness.Do(t, http.MethodGet, c.Admin+"/rate_limit/", "", "Sec-Fetch-Mode", "navigate").Status != http.StatusOK {
		t.Error("an address that is typed does not open the page")
	}
}
