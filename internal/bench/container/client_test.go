// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Each request counts once, as what its client saw.

package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestDriveCountsOutcomes(t *testing.T) {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			rw.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			<-r.Context().Done()
		case 2:
			panic(http.ErrAbortHandler)
		}
	}))
	defer s.Close()
	got := drive(t.Context(), s.URL, 200, 50*time.Millisecond, 0, time.Second, 1)
	if got.Good == 0 || got.Rejected == 0 || got.Left == 0 || got.Failed == 0 {
		t.Errorf("%+v; want some of each", got)
	}
	if sum := got.Good + got.Rejected + got.Left + got.Failed; sum != got.Sent {
		t.Errorf("%+v: %d outcomes", got, sum)
	}
}

// A tree has as many nodes as its bytes say, so that trees and pieces of one size hold the same.
func TestGrow(t *testing.T) {
	var count func(*node) int
	count = func(n *node) int {
		if n == nil {
			return 0
		}
		return 1 + count(n.left) + count(n.right)
	}
	for _, n := range []int{1, 3, 4, 1000} {
		if got := count(grow(n)); got < n || got > n+1 {
			t.Errorf("a tree of %d nodes has %d", n, got)
		}
	}
}
