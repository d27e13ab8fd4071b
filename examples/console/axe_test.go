// The page under axe-core, which finds what keeps people with a keyboard, a screen reader or weak eyes out.

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/limiter"
)

// axe returns the text of axe.min.js. Without STOPBANK_AXE, which names the file, the test is skipped.
func axe(t *testing.T) string {
	t.Helper()
	file := os.Getenv("STOPBANK_AXE")
	if file == "" {
		t.Skip("STOPBANK_AXE names no axe.min.js: npm pack axe-core has one")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// check fails for each serious or critical violation on the page.
func (p *tab) check(axe string) {
	p.t.Helper()
	defer func(began time.Time) { p.t.Logf("%s", time.Since(began)) }(time.Now())
	if !eval[bool](p, `"axe" in window`) {
		eval[bool](p, axe+`; true`)
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

// crowd returns n names of compartments, each of 190 characters, some of them hostile.
func crowd(n int) []string {
	names := make([]string, n)
	for i := range names {
		beginning := fmt.Sprintf([]string{"orders-%d-", "<b>search-%d</b>", "\u202epayments-%d", "mail-%d-\xff"}[i%4], i)
		names[i] = beginning + strings.Repeat("n", 190-len(beginning))
	}
	return names
}

// strain makes the first n of the additional compartments reject a call each. release ends it.
func (s *service) strain(t *testing.T, names []string) (release func()) {
	t.Helper()
	var held []bulkhead.Permit
	for _, name := range names {
		for range 2 { // one more than it has slots
			_, permit, err := s.database.Compartment(name).Acquire(t.Context())
			if err == nil {
				held = append(held, permit)
			} else if !errors.Is(err, warden.ErrRejected) {
				t.Fatal(err)
			}
		}
	}
	return func() {
		for _, permit := range held {
			permit.Release(nil)
		}
	}
}

func TestAxe(t *testing.T) {
	axe, chromium := axe(t), browser(t)
	looks := func(p *tab) {
		t.Helper()
		for _, look := range []struct {
			width  int64
			scheme string
		}{{1280, "light"}, {1280, "dark"}, {390, "light"}} {
			p.look(look.width, 844, look.scheme, look.width < 700)
			p.check(axe)
		}
	}
	pause := func(p *tab) { // the page must not change under it
		p.must(chromedp.Do(p.ctx, chromedp.Click("#pause")))
		p.until(`document.getElementById("status").dataset.state === "paused"`)
	}
	t.Run("empty", func(t *testing.T) {
		s := mustNew(t, console.Config{Interval: 100 * time.Millisecond})
		never := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/events") {
				<-never
				return
			}
			s.private().ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		t.Cleanup(func() { close(never) })
		ctx, cancel := chromedp.NewContext(chromium)
		t.Cleanup(cancel)
		p := &tab{t: t, ctx: ctx}
		p.must(chromedp.Do(ctx, chromedp.Navigate(server.URL+"/console/")))
		p.until(`document.getElementById("status").dataset.state === "connecting"`)
		for _, id := range []string{"no-data", "no-rejections"} {
			if text := eval[string](p, `document.getElementById("`+id+`").innerText`); text != "No data yet." {
				t.Errorf("before the first state, %s says %q", id, text)
			}
		}
		looks(p)
	})

	t.Run("healthy", func(t *testing.T) {
		s := mustNew(t, console.Config{Interval: 100 * time.Millisecond})
		p := open(t, chromium, serve(t, s), 1280, 900, "light", false)
		p.until(`document.getElementById("no-rejections").innerText === "Nothing rejected."`)
		p.until(`document.getElementById("no-data").hidden && document.querySelectorAll("#verdicts li").length > 1`)
		looks(p)
	})

	t.Run("overload and stale", func(t *testing.T) {
		limiters := map[string]*limiter.Limiter{"reports": mustLimiter(t)}
		s := mustNew(t, console.Config{Interval: 100 * time.Millisecond, Limiters: limiters})
		for range 200 { // enough to scroll
			if permit, err := limiters["reports"].TryAcquire(limiter.Task{Name: "GET /reports"}); err == nil {
				defer permit.Release()
			}
		}
		release := s.saturate(t, "GET /products")
		defer release()
		server := httptest.NewServer(s.private())
		p := open(t, chromium, server.URL+"/console/", 1280, 900, "light", false)
		p.until(`document.querySelectorAll("#rejections .group").length > 1`)
		p.until(`!document.getElementById("longest").hidden`)
		eval[bool](p, `[...document.querySelectorAll(".group, .card details")].forEach((d) => { d.open = true; }) ?? true`)
		p.until(`document.querySelector("#rejections .rejection") !== null`)
		eval[bool](p, `document.querySelector("#rejections .rejection").open = true`)
		pause(p)
		looks(p)
		p.must(chromedp.Do(p.ctx, chromedp.Click("#pause")))
		s.console.Close()
		server.Close()
		p.until(`document.body.classList.contains("stale")`)
		looks(p)
	})

	t.Run("200 compartments", func(t *testing.T) {
		names := crowd(197)
		s := mustNew(t, console.Config{Interval: 100 * time.Millisecond}, names...)
		defer s.strain(t, names[:73])()
		p := open(t, chromium, serve(t, s), 1280, 900, "light", false)
		p.until(`document.querySelectorAll("#compartment-table tbody tr").length === 200`)
		pause(p)
		looks(p)
	})
}

// TestCrowd: with 200 compartments, of which 73 reject, and names of 190 characters, the page stays one that a person can read,
// and can be used with the keyboard alone.
func TestCrowd(t *testing.T) {
	chromium := browser(t)
	names := crowd(197)
	s := mustNew(t, console.Config{Interval: 100 * time.Millisecond}, names...)
	relax := s.strain(t, names[:73])
	defer relax()
	release := s.saturate(t, strings.Repeat("n", 190))
	defer release()
	base := serve(t, s)
	p := open(t, chromium, base, 1280, 900, "light", false)
	p.until(`document.querySelectorAll("#compartment-table tbody tr").length === 200`)
	p.until(`document.querySelectorAll("#verdicts li:not([data-level=ok])").length === 11`)
	p.until(`document.querySelectorAll("#running li").length === 5`)
	if text := eval[string](p, `[...document.querySelectorAll("#verdicts .say")].map((e) => e.innerText).filter((t) => t.includes("more")).join()`); text != "64 more to watch. See the table." {
		t.Errorf("the others are %q", text)
	}
	for _, width := range []int64{390, 768, 1280, 1920} {
		p.look(width, 900, "light", width < 700)
		most := 3000
		if width < 600 {
			most = 3400 // the charts are below each other
		}
		if height := eval[int](p, `document.documentElement.scrollHeight`); height >= most {
			t.Errorf("%d wide, the page is %d high", width, height)
		} else {
			t.Logf("%d wide, the page is %d high", width, height)
		}
		if n := eval[int](p, sideways); n > 0 {
			t.Errorf("%d wide: %d pixels too wide", width, n)
		}
		if narrow := eval[int](p, `Math.min(...[...document.querySelectorAll("#verdicts .say")].map((e) => e.clientWidth))`); narrow < 250 {
			t.Errorf("%d wide, a sentence has %d pixels", width, narrow)
		}
	}
	if n := eval[int](p, `document.querySelectorAll("*").length`); n > 3500 {
		t.Errorf("%d elements", n)
	}
	// One place in the order of the Tab key for all rows, and the arrow keys between them.
	p.look(1280, 900, "light", false)
	const stops = `[...document.querySelectorAll("a[href], button, input, summary, [tabindex]")].filter((e) => e.tabIndex >= 0 && e.checkVisibility()).length`
	if n := eval[int](p, stops); n > 90 { // most are the groups of rejections
		t.Errorf("%d places for the Tab key", n)
	}
	if hit := eval[bool](p, `document.querySelectorAll("#verdicts b b, td b").length > 0`); hit {
		t.Error("a name became markup")
	}
	eval[bool](p, `document.querySelector("#compartment-table tbody button[tabindex='0']").focus() ?? true`)
	press := func(key string) { p.t.Helper(); p.must(chromedp.Do(p.ctx, chromedp.KeyEvent(key))) }
	const focused = `document.activeElement.closest("tr")?.rowIndex ?? -1`
	before := eval[int](p, focused)
	press(kb.ArrowDown)
	press(kb.ArrowDown)
	if now := eval[int](p, focused); now != before+2 {
		t.Errorf("two rows down from row %d is row %d", before, now)
	}
	name := eval[string](p, `document.activeElement.textContent`)
	press("\r")
	p.until(`document.querySelectorAll("#compartments > .card").length === 1`)
	if shown := eval[string](p, `document.querySelector("#compartments .name").textContent`); shown != name {
		t.Errorf("the card of %q is that of %q", name, shown)
	}
	// Another order: by name, from a to z, and back.
	for _, want := range []string{"ascending", "descending"} {
		eval[bool](p, `document.querySelector("#compartment-table thead button").click() ?? true`)
		if got := eval[string](p, `document.querySelector("#compartment-table th").getAttribute("aria-sort")`); got != want {
			t.Errorf("sorted %s, want %s", got, want)
		}
		inOrder := `(() => { const of = [...document.querySelectorAll("#compartment-table tbody .name")].map((e) => e.textContent);
			return of.join("\n") === of.toSorted((a, b) => a.localeCompare(b)).join("\n"); })()`
		if sorted := eval[bool](p, inOrder); sorted != (want == "ascending") {
			t.Errorf("%s: from a to z is %v", want, sorted)
		}
	}
	p.clean(base)
}

// TestHungHandlers: handlers that never return, and clients that leave while they wait, are named in the first sentence; and on a
// phone the charts begin on the first screen, below it.
func TestHungHandlers(t *testing.T) {
	chromium := browser(t)
	s := mustNew(t, console.Config{Interval: 100 * time.Millisecond})
	run, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.warden.Run(run) }()
	t.Cleanup(func() { stop(); <-done })
	release := s.saturate(t, "GET /admin/<b>counts</b>")
	defer release()
	base := serve(t, s)
	p := open(t, chromium, base, 390, 844, "light", true)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		permit, err := func() (warden.Permit, error) {
			_, permit, err := s.warden.Acquire(ctx, warden.Task{Name: "GET /checkout", Priority: 127})
			return permit, err
		}()
		cancel()
		if err == nil {
			defer permit.Release()
		}
	}
	p.until(`document.querySelector("#verdicts li").dataset.level === "act"`)
	p.until(`document.querySelector("#running .task")?.textContent === "GET /admin/<b>counts</b>"`)
	if top := eval[int](p, `Math.round(document.querySelector("#charts svg").getBoundingClientRect().bottom)`); top > 844 {
		t.Errorf("the first chart ends at %d, below the first screen", top)
	}
	// The arrow keys read the charts.
	p.until(`document.querySelector("#charts .line").getAttribute("d").split("L").length > 20`)
	eval[bool](p, `document.getElementById("charts").focus() ?? true`)
	p.must(chromedp.Do(p.ctx, chromedp.KeyEvent(kb.ArrowLeft)))
	p.until(`document.querySelector("#charts .axis .to").textContent !== "now"`)
	p.clean(base)
}
