// The page in a crowd of compartments, and with handlers that hang.

package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
)

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
		p.until(fmt.Sprintf(`document.documentElement.scrollHeight < %d`, most)) // a busy browser draws the charts later
		p.fits()
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
	const focused = `document.activeElement.closest("tr")?.rowIndex ?? -1`
	before := eval[int](p, focused)
	p.press(kb.ArrowDown)
	p.press(kb.ArrowDown)
	if now := eval[int](p, focused); now != before+2 {
		t.Errorf("two rows down from row %d is row %d", before, now)
	}
	name := eval[string](p, `document.activeElement.textContent`)
	p.press("\r")
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
	p.pause("paused")
	for _, scheme := range []string{"light", "dark"} {
		p.look(1280, 844, scheme, false)
		p.accessible()
	}
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
	p.press(kb.ArrowLeft)
	p.until(`document.querySelector("#charts .axis .to").textContent !== "now"`)
	p.clean(base)
}
