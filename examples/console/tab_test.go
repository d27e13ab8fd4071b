// A browser tab whose console messages and requests are recorded.

package console

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser starts Chromium and closes it when the test ends. Without Chromium the test is skipped, unless
// STOPBANK_BROWSER=required.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		if os.Getenv("STOPBANK_BROWSER") == "required" {
			t.Fatal("Chromium is not installed, and STOPBANK_BROWSER=required")
		}
		t.Skip("Chromium is not installed")
	}
	profile := t.TempDir()
	allocator, cancel := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.Flag("headless", true), chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.NoFirstRun, chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.WSURLReadTimeout(time.Minute))
	t.Cleanup(cancel)
	ctx, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) })
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// tab is a browser tab with recorded errors and requests.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	faults   []string
	requests []string
}

func open(t *testing.T, browser context.Context, url string, width, height int64, scheme string, mobile bool) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	p := &tab{t: t, ctx: ctx}
	t.Cleanup(cancel)
	p.must(chromedp.Listen(ctx, p.record))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	p.must(err)
	p.look(width, height, scheme, mobile)
	p.must(chromedp.Do(ctx, chromedp.Navigate(url)))
	p.until(`document.getElementById("status").dataset.state === "live"`)
	return p
}

// look changes the size and the color scheme of the window.
func (p *tab) look(width, height int64, scheme string, mobile bool) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	p.must(err)
	options := []chromedp.EmulateViewportOption{chromedp.EmulateScale(1)}
	if mobile {
		options = []chromedp.EmulateViewportOption{chromedp.EmulateScale(2), chromedp.EmulateMobile, chromedp.EmulateTouch,
			chromedp.EmulatePortrait}
	}
	p.must(chromedp.Do(p.ctx, chromedp.EmulateViewport(width, height, options...)))
}

func (p *tab) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *tab) record(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.faults = append(p.faults, e.ExceptionDetails.Text+" "+fmt.Sprint(e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		p.faults = append(p.faults, "console."+fmt.Sprint(e.Type))
	case *cdplog.EventEntryAdded:
		p.faults = append(p.faults, e.Entry.Text+" "+e.Entry.URL)
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	}
}

// clean fails if the browser's console has messages or the page sent requests elsewhere than to base.
func (p *tab) clean(base string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fault := range p.faults {
		p.t.Errorf("on the browser's console: %s", fault)
	}
	if len(p.requests) < 5 {
		p.t.Errorf("%d requests were seen: %v", len(p.requests), p.requests)
	}
	for _, url := range p.requests {
		if !strings.HasPrefix(url, base) {
			p.t.Errorf("a request to %s", url)
		}
	}
}

// eval evaluates a JavaScript expression.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for a JavaScript expression to be true.
func (p *tab) until(expression string) {
	p.t.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(time.Minute))); err != nil {
		p.t.Fatalf("waiting for %s: %v; the page has:\n%s", expression, err, eval[string](p, `document.body.innerText`))
	}
}

// accessible fails for each violation on the page that axe-core calls serious or critical. Without STOPBANK_AXE, which names
// axe.min.js, nothing is looked for.
func (p *tab) accessible() {
	p.t.Helper()
	file := os.Getenv("STOPBANK_AXE")
	if file == "" {
		p.t.Log("STOPBANK_AXE names no axe.min.js (npm pack axe-core has one): barriers are not looked for")
		return
	}
	text, err := os.ReadFile(file)
	p.must(err)
	if !eval[bool](p, `"axe" in window`) {
		eval[bool](p, string(text)+`; true`)
	}
	eval[bool](p, `
		delete window.violations;
		window.axe.run(document, { resultTypes: ["violations"] }).then(
			(r) => { window.violations = r; },
			(e) => { window.violations = { violations: [{ id: "failed", impact: "critical", nodes: [{ html: String(e) }] }], passes: [] }; },
		);
		true`)
	p.until(`window.violations !== undefined`)
	bad := eval[string](p, `window.violations.violations.filter((v) => v.impact === "serious" || v.impact === "critical")
		.map((v) => v.id + " (" + v.impact + "): " + v.nodes.slice(0, 3).map((n) => n.html).join(" | ")).join("\n")`)
	if bad != "" {
		p.t.Errorf("violations:\n%s", bad)
	}
	if n := eval[int](p, `window.violations.passes.length`); n < 15 {
		p.t.Errorf("only %d rules found anything to look at", n)
	}
}

// press presses a key.
func (p *tab) press(key string) {
	p.t.Helper()
	p.must(chromedp.Do(p.ctx, chromedp.KeyEvent(key)))
}

// pause stops what changes the page, or lets it go on.
func (p *tab) pause(state string) {
	p.t.Helper()
	p.must(chromedp.Do(p.ctx, chromedp.Click("#pause")))
	p.until(`document.getElementById("status").dataset.state === "` + state + `"`)
}

// fits fails if the page is wider than its window.
func (p *tab) fits() {
	p.t.Helper()
	if n := eval[int](p, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); n > 0 {
		p.t.Errorf("%d pixels too wide", n)
	}
}
