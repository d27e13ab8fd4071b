// SPDX-License-Identifier: Apache-2.0

// The cost of a request when nothing is overloaded: ours beside the bare proxy, one request of each in turn.

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// cost are times in milliseconds: of requests through a bare Caddy, and through ours.
type cost struct {
	Requests    int     `json:"requests"`
	BareP50     float64 `json:"bare_p50_ms"`
	OursP50     float64 `json:"ours_p50_ms"`
	BareP99     float64 `json:"bare_p99_ms"`
	OursP99     float64 `json:"ours_p99_ms"`
	MedianPair  float64 `json:"median_difference_ms"` // of two requests that follow one another
	LoadAverage float64 `json:"load_average"`
}

func (l *lab) cost(ctx context.Context) (*cost, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		return nil, err
	}
	fast := &http.Server{ //nolint:gosec // the only client is the lab
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }),
	}
	go func() { _ = fast.Serve(listener) }()
	defer fast.Close()
	var urls [2]string
	for i, name := range []string{"bare", "ours"} {
		p, err := l.mount(ctx, frontNamed(name), upstream{addr: listener.Addr().String()})
		if err != nil {
			return nil, err
		}
		defer p.stop() //nolint:gocritic,revive // there are two
		urls[i] = "http://" + p.addr + "/"
	}
	c := &cost{Requests: l.requests, LoadAverage: loadAverage()}
	var times [2][]time.Duration
	var pairs []time.Duration
	for n := range l.requests + 100 {
		var took [2]time.Duration
		for i := range urls {
			i := (i + n) % 2 // each is first as often
			began := time.Now()
			resp, err := get(ctx, urls[i])
			if err != nil {
				return nil, err
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if took[i] = time.Since(began); resp.StatusCode != http.StatusOK {
				return nil, fmt.Errorf("%s: %s", urls[i], resp.Status)
			}
		}
		if n < 100 { // connections, caches
			continue
		}
		for i := range times {
			times[i] = append(times[i], took[i])
		}
		pairs = append(pairs, took[1]-took[0])
	}
	at := func(all []time.Duration, q float64) float64 {
		slices.Sort(all)
		return float64(all[int(q*float64(len(all)))]) / float64(time.Millisecond)
	}
	c.BareP50, c.OursP50, c.BareP99, c.OursP99 = at(times[0], .5), at(times[1], .5), at(times[0], .99), at(times[1], .99)
	c.MedianPair = at(pairs, .5)
	return c, nil
}
