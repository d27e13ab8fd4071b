package main

// The picture of the console in the middle of the incident.

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestScreenshot makes the picture of the docs, if STOPBANK_SCREENSHOTS names the directory to put it in (make pictures): the storefront
// with its traffic, three seconds after the slow query has shipped, without the charts of its warden, which is not what this is about.
func TestScreenshot(t *testing.T) {
	dir := os.Getenv("STOPBANK_SCREENSHOTS")
	if dir == "" {
		t.Skip("STOPBANK_SCREENSHOTS names no directory")
	}
	sc := incident()
	s, p := newOperators(t, protected, "", sc)
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan struct{})
	shipped := make(chan struct{})
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(time.Minute))...)
	defer stop()
	tab, _ := chromedp.NewContext(allocator)
	defer func() { _ = chromedp.Cancel(tab) }()
	if err := chromedp.Do(tab, chromedp.EmulateViewport(1280, 700, chromedp.EmulateScale(1))); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(tab, chromedp.Navigate(p.url+"/console/")); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(tab, chromedp.Sleep(8*time.Second)); err != nil { // a browser that starts takes all processors
		t.Fatal(err)
	}
	go func() {
		defer close(told)
		sc.run(ctx, protected, 1, stage{url: s.url, inUse: s.way.inUse, tell: func(moment) {}, enter: func(p phase) {
			s.deploy(p.hold)
			if p.name == slow {
				close(shipped)
			}
		}})
	}()
	t.Cleanup(func() { cancel(); <-told })
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
