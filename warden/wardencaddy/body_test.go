// SPDX-License-Identifier: Apache-2.0

// Bodies that reverse_proxy holds in memory, in part or whole, and sends again.

package wardencaddy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A body that request_buffers kept only in part is not sent again from memory that another request has by then.
func TestPartlyBufferedBodies(t *testing.T) {
	const kept, others = 8 << 20, 4
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector empties pools
	var mu sync.Mutex
	var sent [][]byte // what the upstream read of each attempt
	failed := make(chan struct{})
	fails := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 64<<10)
		n, _ := io.ReadAtLeast(r.Body, body, 1)
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, body[:n])
		if len(sent) == 1 {
			close(failed)
		}
		panic(http.ErrAbortHandler)
	})
	u := httptest.NewUnstartedServer(fails)
	u.Listener = narrow{u.Listener}
	u.Start()
	addr := u.Listener.Addr().String()
	holds := newUpstream(t)
	p := newProxy(t, fmt.Sprintf(
		"handle /hold {\n\treverse_proxy %s {\n\t\trequest_buffers 64MiB\n\t}\n}\n"+
			"handle {\n\tstopbank\n\treverse_proxy %s {\n\t\ttransport stopbank\n\t\trequest_buffers 8MiB\n"+
			"\t\tlb_try_duration 2s\n\t\tlb_try_interval 10ms\n\t\tlb_retry_match {\n\t\t\tmethod PUT\n\t\t}\n\t}\n}\n", holds.addr(), addr))
	put := func(ctx context.Context, path string, body []byte) {
		p.do(ctx, client, http.MethodPut, path, bytes.NewReader(body), nil)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		put(t.Context(), "/", bytes.Repeat([]byte("A"), 2*kept))
	}()
	await(t, "an attempt", failed)
	u.Close() // the next attempts find nobody
	var all sync.WaitGroup
	defer all.Wait()
	for range others {
		all.Go(func() { put(t.Context(), "/hold", bytes.Repeat([]byte("V"), kept)) })
	}
	for range others {
		await(t, "another's request", holds.begun)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	again := httptest.NewUnstartedServer(fails)
	again.Listener = narrow{l}
	again.Start()
	defer again.Close()
	await(t, "the last attempt", ended)
	for range others {
		holds.release <- struct{}{}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, body := range sent {
		if n := bytes.Count(body, []byte("V")); n > 0 {
			t.Errorf("H32: of %d bytes, %d are of others", len(body), n)
		}
	}
}

// What the next attempt can send whole is sent again: what is buffered whole, what no attempt has read, and nothing at all.
func TestWholeBodiesAreSentAgain(t *testing.T) {
	var tries atomic.Int32
	u := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if tries.Add(1) == 1 && r.URL.Path == "/again" {
			panic(http.ErrAbortHandler)
		}
		_, _ = fmt.Fprintf(w, "%d of %d", len(body), tries.Load())
	}))
	defer u.Close()
	dead := httptest.NewServer(nil)
	dead.Close()
	p := newProxy(t, fmt.Sprintf("stopbank\nreverse_proxy /again %[1]s {\n\ttransport stopbank\n\trequest_buffers 1MiB\n%[3]s}\n"+
		"reverse_proxy %[2]s %[1]s {\n\ttransport stopbank\n\tlb_policy first\n\tfail_duration 1h\n%[3]s}\n", u.Listener.Addr(), dead.Listener.Addr(),
		"\tlb_try_duration 20s\n\tlb_retry_match {\n\t\tmethod PUT\n\t}\n"))
	for path, want := range map[string]string{"/again": "65536 of 2", "/": "65536 of 1"} {
		for _, size := range []int{64 << 10, 0} {
			tries.Store(0)
			body := io.MultiReader(bytes.NewReader(make([]byte, size))) // of unknown length
			got := p.do(t.Context(), client, http.MethodPut, path, body, nil)
			if want := strings.Replace(want, "65536", strconv.Itoa(size), 1); got.body != want {
				t.Errorf("H32: %s: %+v, want %q", path, got, want)
			}
		}
	}
}
