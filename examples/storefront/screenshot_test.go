package main

// The screenshot of the console during the incident.

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestScreenshot makes the screenshot for the docs if STOPBANK_SCREENSHOTS names the output directory (make pictures). It
// shows the storefront three seconds after the deployment of the slow query, without the charts of its warden.
func TestScreenshot(t *testing.T) {
	dir := os.Getenv("STOPBANK_SCREENSHOTS")
	if dir == "" {
		t.Skip("STOPBANK_SCREENSHOTS names no directory")
	}
	sc := incident()
	s, ops := openOf(t, sc, protected, "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	shipped := make(chan struct{})
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(time.Minute))...)
	defer stop()
	tab, _ := chromedp.NewContext(allocator)
	defer func() { _ = chromedp.Cancel(tab) }()
	if err := chromedp.Do(tab, chromedp.EmulateViewport(1280, 700, chromedp.EmulateScale(1)), chromedp.Navigate(ops+"/console/"),
		chromedp.Sleep(8*time.Second)); err != nil { // a starting browser uses all processors
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		sc.follow(ctx, s.url, time.Now(), sc.plan(1), func(p phase) {
			s.deploy(fault{hold: p.hold})
			if p.name == slow {
				close(shipped)
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	<-shipped
	if err := chromedp.Do(tab, chromedp.Sleep(3500*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Run(tab, chromedp.Evaluate[string](`(document.getElementById("warden").style.display = "none")`)); err != nil {
		t.Fatal(err)
	}
	picture, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "storefront-console.png"), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}
