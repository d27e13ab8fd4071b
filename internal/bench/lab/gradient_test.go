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
	for _, c := range []struct {
		what        string
		windows, n  int
		took        time.Duration
		least, most float64 // the limit then
	}{
		{"at the beginning", 1, 30, 10 * time.Millisecond, gradientLeast, gradientLeast + 1},
		{"a steady latency, with more to do", 30, 300, 10 * time.Millisecond, 40, gradientMost},
		{"latency is ten times as long", 60, 300, 100 * time.Millisecond, gradientLeast, gradientLeast},
		{"little to do", 5, 5, 10 * time.Millisecond, gradientLeast, gradientLeast + 1}, // the first of these windows may have begun before them
		{"in the end", 900, 300, 10 * time.Millisecond, gradientMost, gradientMost},
	} {
		for range c.windows {
			window(c.n, c.took)
		}
		if g.limit < c.least || g.limit > c.most || g.inFlight != 0 {
			t.Errorf("%s: limit %v, %d in flight", c.what, g.limit, g.inFlight)
		}
	}
}
