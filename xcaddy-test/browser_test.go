package xcaddytest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// browser is a page of Chromium with its errors.
type browser struct {
	context.Context

	mu        sync.Mutex
	problems  []string
	requested map[string]bool // hosts
}

// openBrowser opens a page that is closed at the end of the test. All pages are in one
// Chromium, each with a profile and a window of its own, so that tests can run beside each
// other.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	chromium.start.Do(startChromium)
	if chromium.err != nil {
		t.Fatalf("%v; Chromium printed:\n%s", chromium.err, chromium.output.String())
	}
	page, err := openWindow(t)
	if err != nil {
		t.Fatalf("a window in Chromium: %v", err)
	}
	ctx, cancel := chromedp.NewContext(chromium.Context, chromedp.WithTargetID(page))
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 10*time.Minute)
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

// openWindow opens a window with a profile of its own, until the end of the test.
func openWindow(t *testing.T) (page target.ID, err error) {
	const most = time.Minute
	ctx, cancel := context.WithTimeout(cdp.WithExecutor(chromium.Context, chromedp.FromContext(chromium.Context).Browser), most)
	defer cancel()
	profile, err := target.CreateBrowserContext().Do(ctx)
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(cdp.WithExecutor(chromium.Context, chromedp.FromContext(chromium.Context).Browser), most)
		defer cancel()
		if err := target.DisposeBrowserContext(profile).Do(ctx); err != nil {
			t.Errorf("close the window in Chromium: %v", err)
		}
	})
	return target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(ctx)
}

// chromium is the browser of all tests, which the first of them starts.
var chromium struct {
	context.Context

	start  sync.Once
	err    error
	stop   func()
	output harness.Output
}

// startChromium starts Chromium. Its start is tried again: on a busy machine it may take
// longer than it gives itself.
func startChromium() {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox,
		chromedp.CombinedOutput(&chromium.output), chromedp.WSURLReadTimeout(time.Minute))
	for range 3 {
		if chromium.err = tryChromium(options); chromium.err == nil {
			return
		}
	}
}

// tryChromium starts Chromium once.
func tryChromium(options []chromedp.ExecAllocatorOption) error {
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // chromedp does not know every event
	if err := chromedp.Run(ctx); err != nil {
		cancel()
		stop()
		return err
	}
	chromium.Context, chromium.stop = ctx, func() { cancel(); stop() } //nolint:fatcontext // it is derived from none
	return nil
}

// stopChromium stops the browser, if a test started it.
func stopChromium() {
	if chromium.stop != nil {
		chromium.stop()
	}
}

func (b *browser) run(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(b, actions...); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.Fatalf("%v; the page: %v", err, b.problems)
	}
}

// click clicks the center of an element, again if the layout moved in between and something
// else was clicked.
func (b *browser) click(t *testing.T, selector string) {
	t.Helper()
	for range 20 {
		var at []float64
		b.run(t, chromedp.Evaluate(fmt.Sprintf(`(() => {
			const e = document.querySelector(%[1]q);
			e.scrollIntoView({block: "center"});
			const r = e.getBoundingClientRect();
			window.hit = false;
			// the page may have drawn another in its place meanwhile
			document.addEventListener("click", (c) => { window.hit = document.querySelector(%[1]q).contains(c.target); }, {capture: true, once: true});
			return [r.x + r.width / 2, r.y + r.height / 2];
		})()`, selector), &at))
		hit := true
		b.run(t, chromedp.MouseClickXY(at[0], at[1]), chromedp.Evaluate(`window.hit !== false`, &hit)) // undefined on another page
		if hit {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s cannot be clicked", selector)
}

// enter types into an element.
func (b *browser) enter(t *testing.T, selector, text string) {
	t.Helper()
	b.click(t, selector)
	b.run(t, input.InsertText(text))
}

// press presses a key as a keyboard does: what handles the key leaves no character to whatever
// has the focus then. [chromedp.KeyEvent] types it nevertheless.
func (b *browser) press(t *testing.T, key string) {
	t.Helper()
	for _, r := range key {
		for _, event := range kb.Encode(r) {
			if event.Type == input.KeyDown {
				event.Type = input.KeyRawDown
			}
			b.run(t, event)
		}
	}
}

// text returns the text of an element, also of one in details that are closed.
func (b *browser) text(t *testing.T, selector string) (text string) {
	t.Helper()
	b.run(t, chromedp.Evaluate(fmt.Sprintf("(e => e?.innerText || e?.textContent || '')(document.querySelector(%q))", selector), &text))
	return text
}

// until waits until an element's text contains all parts.
func (b *browser) until(t *testing.T, selector string, parts ...string) {
	t.Helper()
	var got string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
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

// shots is the folder for screenshots. Without it they are taken and not kept.
var shots = os.Getenv("DIANA_SHOTS")

// shot takes a screenshot. One that is kept shows the next message, too.
func (b *browser) shot(t *testing.T, name string) {
	t.Helper()
	if shots != "" {
		b.run(t, chromedp.Sleep(3*time.Second))
	}
	var png []byte
	b.run(t, chromedp.CaptureScreenshot(&png))
	if len(png) < 10_000 {
		t.Errorf("screenshot %s has %d bytes", name, len(png))
	}
	if shots != "" {
		if err := os.WriteFile(filepath.Join(shots, name+".png"), png, 0o600); err != nil {
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

// visit opens a page on a screen of 1280 by 800 pixels in a light color scheme.
func (b *browser) visit(t *testing.T, address string) {
	t.Helper()
	b.run(t, network.Enable(), runtime.Enable(), screen(1280, 800, false, "light"), chromedp.Navigate(address))
}

// holds waits until an expression is true in the page. One that fails is not: an element may not be there yet.
func (b *browser) holds(t *testing.T, what, expression string) {
	t.Helper()
	harness.Until(t, harness.Patience, what, func() (ok bool) {
		b.run(t, chromedp.Evaluate("(() => { try { return ("+expression+") } catch { return false } })()", &ok))
		return ok
	})
}

// value evaluates an expression that is a number.
func (b *browser) value(t *testing.T, expression string) (n float64) {
	t.Helper()
	b.run(t, chromedp.Evaluate(expression, &n))
	return n
}

// sound fails the test if the page had errors, or asked another host than that of address.
func (b *browser) sound(t *testing.T, address string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) > 0 {
		t.Errorf("errors of the page: %v", b.problems)
	}
	if u, _ := url.Parse(address); len(b.requested) != 1 || !b.requested[u.Host] {
		t.Errorf("the page requests hosts %v, want only %s", b.requested, u.Host)
	}
}

// awaited makes an evaluation wait for a promise.
func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
