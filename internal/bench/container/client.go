// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The clients: an open loop of requests, each with a time at which it should be sent and a patience that counts from there.

package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// tally counts what clients saw from a time on.
type tally struct {
	Sent, Good     int
	Rejected, Left int
	Failed         int     // answered otherwise, or the connection broke
	LateMS         float64 // the most that a request was sent after its time
}

// drive sends requests at a rate for the length of time and counts the outcomes after a warm-up. It ends when the time is over or
// ctx is done, and leaves those that are still waiting out of the count.
func drive(ctx context.Context, url string, rate float64, patience, warm, length time.Duration, seed uint64) tally {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10_000, DisableCompression: true}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var t tally
	var all sync.WaitGroup
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable
	began := time.Now()
	for i := 0; ; i++ {
		// Evenly spaced, each moved by up to half the distance: load and not chance decides what is too much.
		due := began.Add(time.Duration((float64(i) + random.Float64()/2) / rate * float64(time.Second)))
		if due.Sub(began) >= length || !sleepUntil(ctx, due) {
			break
		}
		late := float64(time.Since(due)) / 1e6
		all.Go(func() {
			status, left := get(ctx, client, url, due.Add(patience))
			if ctx.Err() != nil || time.Since(began) < warm {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			t.Sent++
			t.LateMS = max(t.LateMS, late)
			switch {
			case left:
				t.Left++
			case status == http.StatusOK:
				t.Good++
			case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
				t.Rejected++
			default:
				t.Failed++
			}
		})
	}
	<-ctx.Done()
	all.Wait()
	return t
}

// sleepUntil returns false if ctx ended first.
func sleepUntil(ctx context.Context, due time.Time) bool {
	select {
	case <-time.After(time.Until(due)):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// get returns the status of the answer, 0 without one, and whether the client's patience ended first.
func get(ctx context.Context, client *http.Client, url string, patience time.Time) (status int, left bool) {
	ctx, cancel := context.WithDeadline(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, false
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, errors.Is(ctx.Err(), context.DeadlineExceeded)
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
}
