// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The load, against servers of its own: who is asked, who leaves, and what is counted.

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// listen serves until the test ends.
func listen(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func asking(kind string, patience time.Duration) *group {
	return &group{work: workload{heavy: 1, patience: patience}, kind: kind}
}

// What was answered, what was refused and what the client left is told apart by flood, and what is due
// in the middle counts.
func TestOpen(t *testing.T) {
	binary, err := (&lab{root: "../../..", dir: t.TempDir()}).build("warden/flood")
	if err != nil {
		t.Fatal(err)
	}
	flood := func(args ...string) *exec.Cmd { return exec.Command(binary, args...) }
	c := &clients{flood, listen(t, func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case isHeavy(r):
			refuse(rw)
		case !isCritical(r):
			<-r.Context().Done()
		}
	}), asking(untold, 300*time.Millisecond)}
	warmed := 0
	all, err := c.open(300, phases{200 * time.Millisecond, 600 * time.Millisecond, 200 * time.Millisecond}, 7, func() error { warmed++; return nil })
	if err != nil || warmed != 1 || len(all) < 200 || len(all) > 400 {
		t.Fatalf("%d requests, warmed %d times: %v", len(all), warmed, err)
	}
	seen := map[int]int{}
	for i, r := range all {
		want := map[bool]int{true: 200}[r.critical]
		if r.heavy {
			want = 503
		}
		due := time.Duration(r.due)
		if r.status != want && r.status != 0 || r.sent < r.due || r.counted != (due >= 200*time.Millisecond && due < 800*time.Millisecond) {
			t.Fatalf("request %d: %+v, want status %d", i, r, want) // a busy machine may answer too late
		}
		seen[r.status]++
	}
	if seen[200] == 0 || seen[503] == 0 || seen[0] == 0 {
		t.Errorf("%v", seen)
	}
	to := listen(t, func(http.ResponseWriter, *http.Request) {})
	for want, c := range map[string]clients{"allowed: above 0 to 1m": {flood, to, asking(untold, time.Hour)}, io.ErrUnexpectedEOF.Error(): {flood, to, asking(untold, msec)}} {
		all, err := c.open(1, phases{length: time.Second}, 1, func() error { return io.ErrUnexpectedEOF })
		if err == nil || !strings.Contains(err.Error(), want) || all != nil {
			t.Errorf("%d requests, %v, want the error %s", len(all), err, want)
		}
	}
	if n, err := (&clients{flood, to, asking(untold, time.Second)}).capacity(); err != nil || n < 100 {
		t.Errorf("capacity %v: %v", n, err)
	}
}

// A file of requests that has other columns, or is not whole, is an error.
func TestParse(t *testing.T) {
	const head = "load,phase,route,priority,due_ms,sent_ms,done_ms,status,ended\n"
	got, err := parse(strings.NewReader(head + "4,load,light,normal,1.500,2.000,3.250,200,served\n" +
		"4,load,heavy,critical,2.000,2.001,252.000,0,hung\n4,load,light,critical,3.000,4.000,0.000,0,not sent\n" +
		"4,load,light,normal,4.000,4.000,5.000,0,broken\n"))
	want := []request{
		{due: 1_500_000, sent: 2_000_000, done: 3_250_000, status: 200},
		{due: 2_000_000, sent: 2_001_000, done: 252_000_000, critical: true, heavy: true},
		{due: 3_000_000, critical: true},
		{due: 4_000_000, broken: true},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", strings.Replace(head, "due_ms", "due", 1) + "4,load,light,normal,1,2,3,200,served\n",
		head + "4,load,light,normal,soon,2,3,200,served\n"} {
		if got, err := parse(strings.NewReader(text)); err == nil || got != nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
