// The screenshots of the docs.

package console

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/decision"
)

// TestScreenshots makes the screenshots for the docs if STOPBANK_SCREENSHOTS names the output directory (make pictures). They
// show the first screen after 41 seconds of traffic, and the storefront, without the charts of its warden, three seconds after the
// deployment of a slow query.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("STOPBANK_SCREENSHOTS")
	if dir == "" {
		t.Skip("STOPBANK_SCREENSHOTS names no directory")
	}
	chromium := browser(t)
	s := mustNew(t, console.Config{Title: "storefront eu-1/7"})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	all.Go(func() { _ = s.warden.Run(ctx) })
	all.Go(func() { s.traffic(ctx) })
	base := serve(t, s)
	var pages []*tab
	for _, look := range []struct {
		width, height int64
		scheme        string
	}{{1280, 660, "light"}, {1280, 660, "dark"}, {390, 844, "light"}} {
		p := open(t, chromium, base, look.width, look.height, look.scheme, look.width < 600)
		if look.width < 600 { // sharp, and a small file
			p.must(chromedp.Do(p.ctx, chromedp.EmulateViewport(look.width, look.height, chromedp.EmulateScale(1.5),
				chromedp.EmulateMobile)))
		}
		p.hideScrollbars()
		pages = append(pages, p)
	}
	p := pages[0]
	p.must(chromedp.Do(p.ctx, chromedp.Sleep(41*time.Second)))
	for i, file := range []string{"console-light.png", "console-dark.png", "console-phone.png"} {
		pages[i].until(`document.querySelectorAll("#rejections details").length > 0`)
		pages[i].save(dir, file)
	}
	p = open(t, chromium, incident(t), 1280, 700, "light", false)
	p.hideScrollbars()
	p.must(chromedp.Do(p.ctx, chromedp.Sleep(13*time.Second)))
	eval[string](p, `document.getElementById("warden").style.display = "none"`)
	p.save(dir, "storefront-console.png")
}

func (p *tab) hideScrollbars() {
	_, err := chromedp.Call(p.ctx, emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{Hidden: true})
	p.must(err)
}

// save takes a picture of the page.
func (p *tab) save(dir, file string) {
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	p.must(err)
	p.must(os.WriteFile(filepath.Join(dir, file), picture, 0o644))
}

// incident starts the storefront, whose reports are slow after twelve seconds, and returns the address of its console.
func incident(t *testing.T) (console string) {
	cmd := exec.CommandContext(t.Context(), "go", "run", "../storefront", "-serve", "-until-eof", "-listen", "127.0.0.1:0", "-ops", "127.0.0.1:0",
		"-traffic", "-fault", "analytics=3s", "-fault-after", "12s")
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = stdin.Close(), cmd.Wait() })
	for lines := bufio.NewScanner(stdout); console == "" && lines.Scan(); {
		if url, found := strings.CutPrefix(lines.Text(), "console: "); found {
			console = url
		}
	}
	return console
}

// traffic sends requests until ctx ends: twelve seconds as on a usual day, twelve seconds more than can be served, and again.
func (s *service) traffic(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, k := range []struct {
		name                     string
		priority                 decision.Priority
		patience, compute, query time.Duration
		perSecond                [2]float64
	}{
		{"checkout", decision.Critical, time.Second, time.Millisecond, 25 * time.Millisecond, [2]float64{40, 60}},
		{"products", decision.Normal, 500 * time.Millisecond, time.Millisecond, 25 * time.Millisecond, [2]float64{80, 400}},
		{"analytics", decision.Background, 2 * time.Second, 4 * time.Millisecond, 90 * time.Millisecond, [2]float64{10, 60}},
	} {
		query := func(context.Context) (int, error) { time.Sleep(k.query); return 0, nil }
		task := func(ctx context.Context) (int, error) {
			for began := time.Now(); time.Since(began) < k.compute; {
				continue
			}
			return bulkhead.Do(ctx, s.database.Compartment(k.name), query)
		}
		all.Go(func() {
			for began := time.Now(); ctx.Err() == nil; {
				rate := k.perSecond[time.Since(began)/(12*time.Second)%2]
				time.Sleep(time.Duration(rand.ExpFloat64() / rate * float64(time.Second)))
				all.Go(func() {
					ctx, cancel := context.WithTimeout(ctx, k.patience)
					defer cancel()
					_, _ = warden.Do(ctx, s.warden, warden.Task{Name: "GET /" + k.name, Priority: k.priority}, task)
				})
			}
		})
	}
}
