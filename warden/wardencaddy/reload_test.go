// SPDX-License-Identifier: Apache-2.0

// Configurations that replace one another: what a warden has learned and counted stays, no request is lost, and one that fails
// changes nothing.

package wardencaddy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// A reload in the middle of an overload, with more clients than the upstream has workers: each request is answered by the
// upstream or rejected with a reason, never more run than the limit, and the counters go on.
func TestReloadInOverload(t *testing.T) {
	const workers, clients, reloads = 2, 24, 8
	var running, most atomic.Int64
	u := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(2 * time.Millisecond)
	}))
	defer u.Close()
	site := fmt.Sprintf("stopbank shop {\n\tmax %[1]d\n\tinitial %[1]d\n\tqueue 8\n}\n", workers) + proxied(u.Listener.Addr())
	p := newProxy(t, site)
	var answered, rejected, reset atomic.Int64
	done := make(chan struct{})
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				switch got := p.get("/work"); {
				case got.status == http.StatusOK:
					answered.Add(1)
				case got.header.Get("Warden-Rejected") != "" && got.status == http.StatusServiceUnavailable:
					rejected.Add(1)
				case got.err != nil: // Caddy resets connections that it has not read from yet, also without this module
					reset.Add(1)
				default:
					t.Errorf("lost: %d %q", got.status, got.body)
				}
			}
		})
	}
	for i := range reloads {
		before := answered.Load()
		for end := time.Now().Add(patience); answered.Load() < before+50 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if err := p.load(fmt.Sprintf("header Generation %d\n%s", i, site)); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	all.Wait()
	p.until(0, "stopbank_limiter_running")
	if got := p.metric("stopbank_limiter_executed_total"); int64(got) != answered.Load() {
		t.Errorf("%v executed, %d answered: a reload has lost or forgotten some", got, answered.Load())
	}
	if most.Load() > workers || rejected.Load() == 0 {
		t.Errorf("%d ran at once, want at most %d; %d rejected", most.Load(), workers, rejected.Load())
	}
	t.Logf("%d answered, %d rejected, %d reset", answered.Load(), rejected.Load(), reset.Load())
}

// What a warden has learned and counted stays, whatever the next configuration would begin with; what it changes is changed.
func TestReloadKeepsTheLimit(t *testing.T) {
	u := newUpstream(t)
	site := func(fields string) string {
		return "handle_path /console/* {\n\tstopbank_console\n}\nstopbank {\n" + fields + "\n}\n" + u.proxied()
	}
	p := newProxy(t, site("max 3\ninitial 3"))
	p.want("/work", http.StatusOK)
	for _, fields := range []string{"max 3\ninitial 3\ntimeout 1h", "max 50\ninitial 50\nqueue 7"} {
		decisions := p.metric("stopbank_control_decisions_total")
		if err := p.load(site(fields)); err != nil {
			t.Fatal(err)
		}
		if now := p.metric("stopbank_control_decisions_total"); now < decisions {
			t.Errorf("%q: decision %v after %v", fields, now, decisions)
		}
		if target, ran := p.metric("stopbank_limiter_target"), p.metric("stopbank_limiter_executed_total"); target != 3 || ran != 1 {
			t.Errorf("%q: limit %v, %v executed, want 3 and 1", fields, target, ran)
		}
	}
	if state := p.want("/console/state.json", http.StatusOK).body; !strings.Contains(state, `"max":50,"max_queue":7`) {
		t.Errorf("the bounds are not 50 and 7: %.2000s", state)
	}
}

// A configuration that fails, while it is provisioned or when it starts, leaves the one before it as it was.
func TestFailedReload(t *testing.T) {
	u := newUpstream(t)
	site := "stopbank {\n\tmax 1\n\tinitial 1\n\tqueue 3\n}\n" + u.proxied()
	p := newProxy(t, site)
	other := strings.Replace(site, "queue 3", "queue 1\n\tmode dry_run", 1)
	for name, c := range map[string]struct{ site, says string }{
		"provision":     {other + "\nhandle /x {\n\treverse_proxy https://[::1] {\n\t\ttransport http {\n\t\t\ttls_client_auth no.crt no.key\n\t\t}\n\t}\n}\n", "no.crt"},
		"a console":     {other + "\nhandle /x {\n\tstopbank_console other\n}\n", `stopbank_console: name is "other"; allowed: the name of a stopbank: caddy`},
		"two of a name": {other + "\nhandle /x {\n\tstopbank\n\trespond ok\n}\n", "a name of its own for each"},
		"start":         {other + "\n}\nhttp://192.0.2.1:1 {\n\tbind 192.0.2.1\n\trespond ok\n", "192.0.2.1"},
	} {
		if err := p.load(c.site); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Fatalf("%s: %v", name, err)
		}
		all := make(chan answer, 5)
		for i := range 5 {
			go func() { all <- p.reach("/hold") }()
			if i == 0 {
				await(t, "the first request", u.begun)
			}
			if i < 4 {
				p.until(float64(i), "stopbank_limiter_queued")
			}
		}
		if got := await(t, "a rejection", all); got.status != http.StatusServiceUnavailable {
			t.Errorf("%s: %+v, although one runs and three wait", name, got)
		}
		for range 4 {
			u.release <- struct{}{}
		}
		for i := range 4 {
			if got := await(t, "an answer", all); got.status != http.StatusOK {
				t.Errorf("%s: %+v", name, got)
			}
			if i > 0 {
				await(t, "a request", u.begun)
			}
		}
	}
}

// A reload or a stop answers what runs and what waits.
func TestNothingThatWaitsIsLost(t *testing.T) {
	u := newUpstream(t)
	site := "stopbank {\n\tmax 1\n\tinitial 1\n\ttimeout 1m\n}\n" + u.proxied()
	for _, reload := range []bool{true, false} {
		p := newProxy(t, site)
		all, stopped := p.holding(u), make(chan error, 1)
		if reload {
			stopped <- p.load("header A b\n" + site)
		} else {
			go func() { stopped <- caddy.Stop() }()
		}
		u.answered(t, all...)
		if err := await(t, "the end", stopped); err != nil {
			t.Error(err)
		}
		for range 3 {
			<-u.begun
		}
	}
}

// The console shows the warden of its name, and an open page delays neither a reload nor a stop.
func TestConsole(t *testing.T) {
	u := newUpstream(t)
	site := "handle_path /console/* {\n\tstopbank_console shop\n}\nstopbank shop\nstopbank /other other\n" + u.proxied()
	p := newProxy(t, site)
	p.want("/work", http.StatusOK)
	if got := p.want("/console/", http.StatusOK); !strings.Contains(got.header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%+v", got.header)
	}
	if got := p.want("/console/state.json", http.StatusOK); !strings.Contains(got.body, `"title":"shop"`) {
		t.Errorf("%.300s", got.body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, end := range []func() error{func() error { return p.load("header A b\n" + site) }, caddy.Stop} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/console/events", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		page, err := client.Do(req)
		for err != nil && ctx.Err() == nil { // a reload has just reset the connection, as Caddy does
			page, err = client.Do(req)
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(page.Body)
		lines.Buffer(nil, 1<<20)
		if !lines.Scan() {
			t.Fatalf("no event: %v", lines.Err())
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
		}
		if page.Body.Close(); errors.Is(lines.Err(), context.DeadlineExceeded) {
			t.Error("the page did not end")
		}
	}
}

// A stream passes piece by piece and holds its slot to its end; an upgraded connection does too.
func TestStreams(t *testing.T) {
	next := make(chan string)
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			c, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprint(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = buf.Flush()
			line, _ := buf.ReadString('\n')
			fmt.Fprint(buf, line)
			_ = buf.Flush()
			_, _ = buf.ReadString('\n') // until the client ends
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for piece := range next {
			fmt.Fprintf(w, "data: %s\n", piece)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer u.Close()
	p := newProxy(t, "stopbank\n"+proxied(u.Listener.Addr()))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.addr+"/", http.NoBody)
	go func() { next <- "one" }()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	for i, piece := range []string{"one", "two", "three"} {
		if i > 0 {
			next <- piece
		}
		if !lines.Scan() || lines.Text() != "data: "+piece {
			t.Fatalf("%q, %v, want %s", lines.Text(), lines.Err(), piece)
		}
		p.until(1, "stopbank_limiter_parked")
		p.until(0, "stopbank_limiter_running")
	}
	close(next)
	for lines.Scan() {
	}
	resp.Body.Close()
	p.until(0, "stopbank_limiter_parked")

	c := p.dial("GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	defer c.Close()
	buf := bufio.NewReader(c)
	up, err := http.ReadResponse(buf, nil)
	if err != nil || up.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", up, err)
	}
	fmt.Fprint(c, "hello\n")
	if line, err := buf.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
	p.until(1, "stopbank_limiter_parked")
	_ = c.Close()
	p.until(0, "stopbank_limiter_parked")
}
