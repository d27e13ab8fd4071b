// SPDX-License-Identifier: Apache-2.0

// A line about one request has its ID, once and at the top, whatever the message.

package wardenslog_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

type openBreaker struct{}

func (openBreaker) Allow() (func(error), error) { return nil, errors.New("open") }

func TestTheIDIsInEachLineOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open()
		l := must(limiter.New(limiter.Config{Observer: log.Limiter(), Initial: decision.ControlDecision{Seq: 1}}))(t)
		set := must(bulkhead.New(bulkhead.Config{Total: 2, Observer: log.Bulkhead(), Compartments: []bulkhead.CompartmentConfig{
			{Name: "slow", Guaranteed: 1, Timeout: time.Second}, {Name: "broken", Guaranteed: 1, Breaker: openBreaker{}},
		}}))(t)
		ctx := warden.WithRequestID(t.Context(), "7f9c")
		never := func(context.Context) (int, error) { return 0, nil }
		for range 2 { // one that begins, and a sample
			_, _ = l.TryAcquire(limiter.Task{Name: "x", ID: "7f9c"})
			_, _ = bulkhead.Do(ctx, set.Compartment("broken"), never)
		}
		stuck := make(chan struct{})
		_, err := bulkhead.DoOr(ctx, set.Compartment("slow"), func(context.Context) (int, error) { <-stuck; panic("on purpose") },
			func(_ context.Context, cause error) (int, error) { return 0, cause })
		var timeout *bulkhead.TimeoutError
		if !errors.As(err, &timeout) || timeout.RequestID != "7f9c" {
			t.Errorf("%+v", err)
		}
		_, _ = bulkhead.Do(ctx, set.Compartment("slow"), never)
		close(stuck)
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(b.all(false)), "\n")
		if len(lines) != 9 { // four of limiter and breaker; timed_out, abandoned, fallback_failed, rejecting and the late panic
			t.Errorf("%d lines", len(lines))
		}
		for _, line := range lines {
			if strings.Count(line, `,"request_id":"7f9c",`) != 1 || strings.Count(line, "7f9c") != 1 {
				t.Error(line)
			}
		}
		before, _, _ := strings.Cut(lines[0], `"request_id"`)
		if strings.Contains(before, "{\"limiter") {
			t.Errorf("it is not at the top: %s", lines[0])
		}
		_, _ = l.TryAcquire(limiter.Task{ID: "a\nlevel=ERROR " + strings.Repeat("x", 1000)})
		_, _ = l.TryAcquire(limiter.Task{})
		synctest.Wait()
		lines = strings.Split(strings.TrimSpace(b.all(false)), "\n")
		if n := len(lines); n != 11 || len(lines[n-2]) > 1000 || strings.Contains(lines[n-1], "request_id") {
			t.Errorf("%d lines: %q", n, lines)
		}
	})
}
