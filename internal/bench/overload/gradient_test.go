// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Gradient2 grows while latency stays, shrinks while it rises, and never leaves its range.

package main

import (
	"testing"
	"time"
)

func TestGradient2(t *testing.T) {
	g := newGradient2()
	now := time.Now()
	// window runs n at a time, each for so long, to the end of a window.
	window := func(n int, took time.Duration) {
		for end := now.Add(gradientWindow + took); now.Before(end); now = now.Add(took) {
			began := 0
			for range n {
				inFlight, ok := g.begin()
				if !ok {
					break
				}
				began = inFlight
			}
			for i := range began {
				g.end(i+1, took, now)
			}
		}
	}
	window(30, 10*time.Millisecond)
	for range gradientLeast {
		if _, ok := g.begin(); !ok {
			t.Fatal("fewer than 20 at the beginning")
		}
	}
	if _, ok := g.begin(); ok && int(g.limit) == gradientLeast {
		t.Fatal("more than its limit")
	}
	g.inFlight = 0
	for range 30 {
		window(300, 10*time.Millisecond)
	}
	grown := g.limit
	if grown < 40 {
		t.Fatalf("limit %v after 30 s of a steady latency, with more to do", grown)
	}
	for range 5 {
		window(5, 10*time.Millisecond)
	}
	if g.limit < grown || g.limit > grown+1 { // the first of these windows may have begun before them
		t.Errorf("limit %v with little to do, want %v", g.limit, grown)
	}
	for range 60 {
		window(300, 100*time.Millisecond)
	}
	if g.limit != gradientLeast {
		t.Errorf("limit %v while latency is ten times as long", g.limit)
	}
	for range 900 {
		window(300, 10*time.Millisecond)
	}
	if g.limit != gradientMost || g.inFlight != 0 {
		t.Errorf("limit %v, %d in flight in the end", g.limit, g.inFlight)
	}
}
