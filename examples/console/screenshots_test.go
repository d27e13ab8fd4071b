// The pictures of the docs.

package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/stopbank/stopbank/warden/console"
)

// TestScreenshots makes the pictures of the docs, if STOPBANK_SCREENSHOTS names the directory to put them in. It takes a
// minute of traffic.
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
	all.Go(func() { _ = s.mail(ctx) })
	base := serve(t, s)
	var pages []*tab
	for _, look := range []struct {
		width  int64
		scheme string
	}{{1280, "light"}, {1280, "dark"}, {390, "light"}} {
		p := open(t, chromium, base, look.width, 900, look.scheme, look.width < 600)
		_, err := chromedp.Call(p.ctx, emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{Hidden: true})
		p.must(err)
		pages = append(pages, p)
	}
	p := pages[0]
	p.must(chromedp.Do(p.ctx, chromedp.Sleep(41*time.Second)))
	for i, file := range []string{"console-light.png", "console-dark.png", "console-phone.png"} {
		p := pages[i]
		p.until(`document.querySelectorAll("#rejections details").length > 0`)
		eval[bool](p, `(document.querySelector("#rejections details:nth-of-type(2)").open = true)`)
		picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
		p.must(err)
		p.must(os.WriteFile(filepath.Join(dir, file), picture, 0o644))
	}
}
