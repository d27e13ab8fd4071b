// The page in a real browser: its content, its requests, and hostile names, which must not change it.

package console

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/decision"
)

// saturate takes slots of the warden until it rejects a task, and makes another task wait. release ends both.
func (s *service) saturate(t *testing.T, name string) (release func()) {
	t.Helper()
	var held []warden.Permit
	for {
		permit, err := s.warden.TryAcquire(warden.Task{Name: name, Priority: decision.High})
		if errors.Is(err, warden.ErrRejected) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, permit)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, _ = warden.Do(ctx, s.warden, warden.Task{Name: "waits"},
			func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, nil })
	})
	return func() {
		cancel()
		waiting.Wait()
		for _, permit := range held {
			permit.Release()
		}
	}
}

func TestBrowser(t *testing.T) {
	chromium := browser(t)

	t.Run("live", func(t *testing.T) {
		s := mustNew(t, console.Config{Title: "the title", Interval: 100 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		t.Cleanup(func() { cancel(); all.Wait() })
		all.Go(func() { _ = s.warden.Run(ctx) })
		base := serve(t, s)
		p := open(t, chromium, base, 1280, 900, "light", false)
		value := func(name string) string {
			return `[...document.querySelectorAll("#tiles div")].find(d => d.firstChild.textContent === "` + name +
				`").children[1].textContent`
		}
		if title := eval[string](p, `document.title`); !strings.HasSuffix(title, "the title") {
			t.Errorf("the title is %q", title)
		}
		p.until(value("In flight") + ` === "0"`)
		p.until(`document.getElementById("bounds").textContent.endsWith("65,536. At most 1,024 queued.")`)
		p.must(s.warden.Adjust("<b>anna</b>", func(b *warden.Bounds) { b.Timeout = 250 * time.Millisecond }))
		p.until(`document.getElementById("bounds").textContent.includes("queued. Timeout 250 ms. Changed by <b>anna</b> at ")`)
		if n := eval[int](p, `document.querySelectorAll("#rejections details").length`); n != 0 ||
			eval[bool](p, `document.getElementById("no-rejections").hidden`) {
			t.Errorf("%d rejections before the first request", n)
		}
		if names := eval[string](p, `[...document.querySelectorAll("#compartments .name")].map(e => e.textContent).join()`); names != "checkout,products,analytics" {
			t.Errorf("the compartments are %s", names)
		}
		_, call, err := s.database.Compartment("products").Acquire(t.Context())
		p.must(err)
		p.until(`document.querySelectorAll("#compartments .caption")[1].textContent.startsWith("1 in flight, 4 guaranteed, 8 at most")`)
		call.Release(nil)
		p.until(`document.querySelectorAll("#compartments .caption")[1].textContent.startsWith("0 in flight")`)
		p.until(`document.getElementById("no-rejections").innerText === "Nothing rejected."`)
		p.accessible()

		for range 4 { // one more than it has slots
			if _, permit, err := s.database.Compartment("analytics").Acquire(t.Context()); err == nil {
				defer permit.Release(nil)
			}
		}
		const ofAnalytics = `[...document.querySelectorAll("#rejections .group")].some(d => d.textContent.includes("analytics"))`
		p.until(ofAnalytics)

		release := s.saturate(t, "the flood")
		p.until(value("In flight") + ` !== "0"`)
		p.until(`document.querySelector("#verdicts li").dataset.level === "act"`)
		p.until(`document.title.startsWith("act")`)
		p.until(`document.querySelectorAll("#charts path.line")[0].getAttribute("d").length > 100`)

		// The keyboard opens the rejections of the warden, and one of them, which shows its details and stays open while others arrive.
		const ofWarden = `[...document.querySelectorAll("#rejections .group")].find(d => d.firstChild.textContent.includes("warden"))`
		p.until(ofWarden + ` !== undefined`)
		eval[bool](p, ofWarden+`.firstChild.focus() ?? true`)
		p.press("\r")
		p.until(ofWarden + `.querySelector(".rejection summary")?.textContent.includes("the flood")`)
		eval[bool](p, ofWarden+`.querySelector(".rejection summary").focus() ?? true`)
		p.press("\r")
		p.until(ofWarden + `.querySelector(".rejection").open`)
		text := eval[string](p, ofWarden+`.querySelector(".rejection").innerText`)
		for _, want := range []string{"no_slot", "the flood", "high (64)", "in flight", "Controller", "Its grounds",
			"no free slot, and it may not queue", "rejected: no_slot: task"} {
			if !strings.Contains(text, want) {
				t.Errorf("the explanation lacks %q:\n%s", want, text)
			}
		}
		var more []warden.Permit
		for rejected := 0; rejected < 100; {
			permit, err := s.warden.TryAcquire(warden.Task{Name: "another"})
			if err != nil {
				rejected++
			}
			more = append(more, permit) // admitted if the warden has raised its limit meanwhile
		}
		p.until(ofWarden + `.querySelectorAll(".rejection").length > 40`) // the open one stays
		p.until(`Number.parseInt(` + ofWarden + `.querySelector("b").textContent) > 50`)
		if n := eval[int](p, `document.querySelectorAll("#rejections .rejection[open]").length`); n != 1 {
			t.Errorf("%d rejections are open, want the one that was opened", n)
		}
		if !eval[bool](p, ofAnalytics) {
			t.Error("a hundred rejections of the warden have displaced the one of a compartment")
		}
		p.until(`document.querySelectorAll("#decisions li").length > 0`)

		// Pausing stops updates; resuming continues them.
		p.pause("paused")
		before := eval[string](p, value("In flight"))
		release()
		for _, permit := range more {
			permit.Release()
		}
		p.must(chromedp.Do(p.ctx, chromedp.Sleep(500*time.Millisecond)))
		if now := eval[string](p, value("In flight")); now != before || before == "0" {
			t.Errorf("paused, In flight went from %s to %s", before, now)
		}
		p.pause("live")
		p.until(value("In flight") + ` === "0"`)
		p.clean(base)
	})

	// Names with markup, scripts or control characters are shown as text.
	t.Run("hostile", func(t *testing.T) {
		const attack = `<script>window.hit=1</script><img src=x onerror="window.hit=2"><svg onload=window.hit=3>"'` + "`" +
			`</script>` + "\u202e\x00\xff\r\ndata: {}\n\n"
		s := mustNew(t, console.Config{Title: attack, Interval: 100 * time.Millisecond}, attack)
		release := s.saturate(t, attack+strings.Repeat("W", 10_000))
		defer release()
		base := serve(t, s)
		p := open(t, chromium, base, 390, 844, "light", true)
		p.until(`document.querySelectorAll("#rejections details").length > 0`)
		eval[bool](p, unfold)
		p.until(`document.querySelectorAll("#compartments .name").length === 4 && document.querySelector("#rejections .rejection") !== null`)
		eval[bool](p, unfold)
		if hit := eval[bool](p, `"hit" in window`); hit {
			t.Error("a name was run")
		}
		if n := eval[int](p, `document.querySelectorAll("body script, img, svg[onload]").length`); n != 0 {
			t.Errorf("%d elements came from names", n)
		}
		for _, where := range []string{`document.querySelector("#rejections .rejection .task")`,
			`document.querySelectorAll("#compartments .name")[3]`, `document.getElementById("title")`} {
			if text := eval[string](p, where+`.textContent`); !strings.HasPrefix(text, `<script>window.hit=1</script><img`) {
				t.Errorf("%s reads %q", where, text)
			}
		}
		p.fits()
		p.clean(base)
	})

	// A search by request id finds one rejection among many, from the box and from a link.
	t.Run("find", func(t *testing.T) {
		const id = `4bf92f&<img/src=x>#%2e`
		s := mustNew(t, console.Config{Title: "shop", Instance: "shop-7f9c", Interval: 100 * time.Millisecond})
		base := serve(t, s)
		for i := range 4 { // one more than it has slots
			ctx := warden.WithRequestID(t.Context(), id)
			if _, permit, err := s.database.Compartment("analytics").Acquire(ctx); err == nil {
				defer permit.Release(nil)
			} else if i < 3 {
				t.Fatal(err)
			}
		}
		release := s.saturate(t, "the flood")
		defer release()
		p := open(t, chromium, base, 390, 844, "dark", true)
		if shown := eval[string](p, `document.querySelector("h1").textContent`); shown != "shop shop-7f9c" {
			t.Errorf("the heading is %q", shown)
		}
		const status = `document.getElementById("found-text").textContent`
		found := `document.querySelectorAll("#found details[open]").length === 1 && document.querySelector("#found .all").textContent.includes("analytics")` +
			` && document.querySelector("#found .all").textContent.includes("Request` + id + `")`
		p.must(chromedp.Do(p.ctx, chromedp.SendKeys("#what", id+"\r")))
		p.until(found)
		p.until(status + `.startsWith("Found 1 of the ")`)
		p.fits()
		link := eval[string](p, `location.href`)
		eval[string](p, `document.getElementById("what").value = "gone"`)
		p.must(chromedp.Do(p.ctx, chromedp.Click("#find button")))
		p.until(status + `.startsWith("Not found. This process keeps the last rejections")`)
		p.until(`document.querySelectorAll("#found details").length === 0`)
		p.clean(base)
		other := open(t, chromium, link, 1280, 900, "light", false)
		other.until(found)
		if box := eval[string](other, `document.getElementById("what").value`); box != id {
			t.Errorf("the box has %q", box)
		}
		if n := eval[int](other, `document.querySelectorAll("img").length`); n != 0 {
			t.Error("the id became markup")
		}
		other.clean(base)
	})

	// Dead letters are listed without their payload.
	t.Run("dead letters", func(t *testing.T) {
		const attack = `<img src=x onerror="window.hit=2"><script>window.hit=1</script>` + "\u202e\x00\xff"
		s := mustNew(t, console.Config{Interval: 100 * time.Millisecond})
		base := serve(t, s)
		p := open(t, chromium, base, 390, 844, "light", true)
		p.until(`document.getElementById("letters-sum").textContent.startsWith("None at")`)
		letters := make([]deadletter.Letter, 150)
		for offset := range letters {
			letters[offset] = deadletter.Letter{
				Partition: "mail/0", At: time.Now(), Failure: attack + strings.Repeat("W", 10_000),
				Record: dispatch.Record{Domain: attack, Offset: int64(offset), Payload: []byte("the secret payload")},
			}
		}
		letters[2].Parked, letters[2].Note = true, attack
		letters[3].At = time.Time{} // not known
		s.letters.all.Store(letters)
		p.until(`document.getElementById("letters-sum").textContent.includes("150 at")`)
		for what, want := range map[string]string{
			`document.getElementById("letters").dataset.level`:                             "watch",
			`String(document.querySelectorAll("#letter-list li").length)`:                  "100",
			`document.querySelectorAll("#letter-list .task")[2].textContent`:               "mail/0@2",
			`document.querySelectorAll("#letter-list .key")[2].textContent.slice(0, 8)`:    "<img src",
			`document.querySelectorAll("#letter-list .aside")[2].textContent.slice(0, 14)`: "parked: <img s",
			`String("hit" in window)`: "false",
			`String(document.body.innerText.includes("the secret payload"))`: "false",
			`String(document.querySelectorAll("body script, img").length)`:   "0",
		} {
			if got := eval[string](p, what); got != want {
				t.Errorf("%s is %q, want %q", what, got, want)
			}
		}
		for width, scheme := range map[int64]string{320: "light", 1280: "dark"} {
			p.look(width, 844, scheme, width < 700)
			p.fits()
			p.accessible()
		}
		alone, err := console.New(console.Config{DeadLetters: deadLetters(&s.letters), Interval: 100 * time.Millisecond})
		p.must(err)
		server := httptest.NewServer(alone)
		t.Cleanup(func() { alone.Close(); server.Close() })
		worker := open(t, chromium, server.URL+"/", 1280, 900, "light", false)
		worker.until(`document.title.startsWith("watch") && document.querySelectorAll("#letter-list li").length === 100`)
		worker.clean(server.URL + "/")
		p.clean(base)
	})

	t.Run("looks", func(t *testing.T) {
		s := mustNew(t, console.Config{Interval: 100 * time.Millisecond})
		release := s.saturate(t, "GET /a/rather/long/path/of/a/request/that/somebody/has/made?with=parameters&and=more")
		defer release()
		base := serve(t, s)
		p := open(t, chromium, base, 1280, 844, "light", false)
		p.until(`document.querySelectorAll("#rejections details").length > 0`)
		eval[bool](p, unfold)
		p.until(`document.querySelector("#rejections .rejection") !== null`)
		eval[bool](p, unfold)
		p.pause("paused")
		grounds := map[string]string{}
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{320, 390, 600, 768, 1280} {
				p.look(width, 844, scheme, width < 700)
				p.fits()
				columns := eval[int](p, `new Set([...document.querySelectorAll("#charts figure")].map(f => f.getBoundingClientRect().left)).size`)
				if want := width > 600; (columns > 1) != want {
					t.Errorf("%d wide: %d columns of charts", width, columns)
				}
				grounds[scheme] = eval[string](p, `getComputedStyle(document.body).backgroundColor`)
				if width == 320 || width == 1280 {
					p.accessible()
				}
			}
		}
		p.clean(base)
		if grounds["light"] == grounds["dark"] {
			t.Errorf("light and dark are both %s", grounds["light"])
		}
	})

	// Without a free stream the page polls, and shows that it does.
	t.Run("no stream", func(t *testing.T) {
		s := mustNew(t, console.Config{Interval: 100 * time.Millisecond})
		base := serve(t, s)
		for range 15 { // all streams but one
			stream, err := http.Get(base + "events")
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Body.Close()
		}
		first := open(t, chromium, base, 800, 600, "light", false)
		ctx, cancel := chromedp.NewContext(chromium)
		defer cancel()
		p := &tab{t: t, ctx: ctx}
		p.must(chromedp.Do(ctx, chromedp.Navigate(base)))
		p.until(`document.getElementById("status").dataset.state === "polling"`)
		p.until(`document.querySelectorAll("#compartments .name").length === 3`)
		s.console.Close()
		first.until(`document.getElementById("status").dataset.state === "polling"`)
	})

	t.Run("nothing heard yet", func(t *testing.T) {
		s := mustNew(t, console.Config{Interval: 100 * time.Millisecond})
		never := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/events") {
				<-never
				return
			}
			s.ServeHTTP(w, r)
		}))
		t.Cleanup(func() { close(never); server.Close() })
		ctx, cancel := chromedp.NewContext(chromium)
		defer cancel()
		p := &tab{t: t, ctx: ctx}
		p.must(chromedp.Do(ctx, chromedp.Navigate(server.URL+"/console/")))
		p.until(`document.getElementById("status").dataset.state === "connecting"`)
		for _, id := range []string{"no-data", "no-rejections"} {
			if text := eval[string](p, `document.getElementById("`+id+`").innerText`); text != "No data yet." {
				t.Errorf("before the first state, %s says %q", id, text)
			}
		}
		p.accessible()
	})

	t.Run("stale", func(t *testing.T) {
		s := mustNew(t, console.Config{Interval: 100 * time.Millisecond})
		server := httptest.NewServer(s)
		p := open(t, chromium, server.URL+"/console/", 800, 600, "light", false)
		s.console.Close()
		server.Close()
		p.until(`document.body.classList.contains("stale")`)
		p.accessible()
		if text := eval[string](p, `document.getElementById("status").textContent`); !strings.Contains(text, "nothing heard for") {
			t.Errorf("the status is %q", text)
		}
	})
}

// unfold opens all that can be opened: groups of rejections first, and at the second time what they hold.
const unfold = `document.querySelectorAll("details").forEach(d => d.open = true) ?? true`
