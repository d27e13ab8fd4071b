// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The load, against servers of its own: who is asked, who leaves, and what is counted.

package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// listen serves until the test ends.
func listen(t *testing.T, h http.HandlerFunc) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().(*net.TCPAddr)
}

// What was answered, what was refused and what the client left is told apart by flood, of the kinds and in the shares that were
// asked for, and equal seeds ask the same.
func TestOpen(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "flood")
	if err := buildFlood("../../..", binary); err != nil {
		t.Fatal(err)
	}
	for _, knows := range []string{untold, post, h2} {
		t.Run(knows, func(t *testing.T) {
			var left atomic.Int64
			to := listen(t, func(rw http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if (r.Method == http.MethodPost) != (knows == post) || (r.ProtoMajor == 2) != (knows == h2) ||
					len(body) > 0 != (knows == post) || err != nil {
					t.Errorf("%s %s with a body of %d for %s: %v", r.Method, r.Proto, len(body), knows, err)
				}
				switch {
				case isHeavy(r):
					refuse(rw)
				case isCritical(r):
					_, _ = rw.Write(bytes.Repeat([]byte("page "), 10000))
				default:
					<-r.Context().Done()
					left.Add(1)
				}
			})
			c := &clients{binary, to, knows, 300 * time.Millisecond}
			warmed := 0
			run := func(seed uint64) []request {
				all, err := c.open(300, 200*time.Millisecond, 600*time.Millisecond, 200*time.Millisecond, seed, func() error { warmed++; return nil })
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			all := run(7)
			var leaves int64
			count := map[bool]int{}
			for i, r := range all {
				want := 0
				switch {
				case r.heavy:
					want = 503
				case r.critical:
					want = 200
				default:
					leaves++
				}
				if r.status != want && r.status != 0 || r.sent < r.due || r.done < r.sent || i > 0 && r.due < all[i-1].due {
					t.Fatalf("request %d: %+v, want status %d", i, r, want) // a busy machine may answer too late
				}
				if due := time.Duration(r.due); r.counted != (due >= 200*time.Millisecond && due < 800*time.Millisecond) {
					t.Fatalf("request %d: %+v", i, r)
				}
				count[r.status == 200]++
			}
			if n := len(all); warmed != 1 || n < 200 || n > 400 || leaves == 0 || count[true] == 0 {
				t.Fatalf("%d requests, %d leave, %v answered, warmed %d times", n, leaves, count, warmed)
			}
			for left.Load() < leaves {
				time.Sleep(time.Millisecond) // the test's own limit ends this
			}
			asked := func(all []request) (is []request) {
				for _, r := range all {
					is = append(is, request{due: r.due, critical: r.critical, heavy: r.heavy})
				}
				return is
			}
			if knows == untold && (!slices.Equal(asked(all), asked(run(7))) || slices.Equal(asked(all), asked(run(8)))) {
				t.Error("a seed is not its own")
			}
		})
	}
	to := listen(t, func(rw http.ResponseWriter, _ *http.Request) { refuse(rw) })
	for want, c := range map[string]clients{"allowed: above 0 to 1m": {binary, to, untold, time.Hour}, io.ErrUnexpectedEOF.Error(): {binary, to, untold, msec}} {
		if all, err := c.open(1, 0, time.Second, 0, 1, func() error { return io.ErrUnexpectedEOF }); err == nil ||
			!strings.Contains(err.Error(), want) || all != nil {
			t.Errorf("%d requests, %v, want the error %s", len(all), err, want)
		}
	}
}

// A file of requests is read by its columns' names, and one that is not whole is an error.
func TestParse(t *testing.T) {
	const head = "load,phase,route,priority,due_ms,sent_ms,done_ms,status,attempts,ended\n"
	got, err := parse(strings.NewReader(head + "4,load,light,normal,1.500,2.000,3.250,200,1,served\n" +
		"4,load,heavy,critical,2.000,2.001,252.000,0,1,hung\n4,load,light,critical,3.000,4.000,0.000,0,0,not sent\n" +
		"4,load,light,normal,4.000,4.000,5.000,0,1,broken\n"))
	want := []request{
		{due: 1_500_000, sent: 2_000_000, done: 3_250_000, status: 200},
		{due: 2_000_000, sent: 2_001_000, done: 252_000_000, critical: true, heavy: true},
		{due: 3_000_000, critical: true},
		{due: 4_000_000},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", strings.Replace(head, "due_ms", "due", 1) + "4,load,light,normal,1,2,3,200,1,served\n", head + "4,load\n",
		head + "4,load,light,normal,soon,2,3,200,1,served\n", head + "4,load,light,normal,1,2,3,OK,1,served\n"} {
		if got, err := parse(strings.NewReader(text)); err == nil || got != nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// A closed loop keeps exactly so many requests under way.
func TestClosedLoop(t *testing.T) {
	for _, knows := range []string{untold, post, h2} {
		const n = 5
		var under, most, answered, heavy atomic.Int64
		to := listen(t, func(rw http.ResponseWriter, r *http.Request) {
			if (r.Method == http.MethodPost) != (knows == post) || (r.ProtoMajor == 2) != (knows == h2) {
				t.Errorf("%s %s for %s", r.Method, r.Proto, knows)
			}
			if isHeavy(r) {
				heavy.Add(1)
			}
			now := under.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			time.Sleep(5 * time.Millisecond) // the request takes a while, so that several are under way
			answered.Add(1)
			under.Add(-1)
			_, _ = rw.Write([]byte("done"))
		})
		begun := 0
		got, err := (&clients{"", to, knows, 0}).closed(n, 50*time.Millisecond, 200*time.Millisecond, func() error { begun++; return nil })
		if err != nil || begun != 1 {
			t.Fatalf("begun %d times: %v", begun, err)
		}
		if all := answered.Load(); most.Load() != n || got == 0 || int64(got) > all || heavy.Load() < all/10 || heavy.Load() > all/10+1 {
			t.Fatalf("%d under way, %d of %d answers counted, %d heavy", most.Load(), got, all, heavy.Load())
		}
	}
}

// A server that breaks connections has no capacity.
func TestClosedLoopFails(t *testing.T) {
	to := listen(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := (&clients{"", to, untold, 0}).closed(1, 0, 50*time.Millisecond, func() error { return nil }); err == nil {
		t.Error("no error")
	}
}
