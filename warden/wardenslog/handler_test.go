// SPDX-License-Identifier: Apache-2.0

// Handlers that panic, fail or hang: they cost their lines, and hold nobody up.

package wardenslog_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

// handler is a slog.Handler that calls a function.
type handler struct{ handle func(slog.Record) error }

func (h handler) Enabled(context.Context, slog.Level) bool      { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error { return h.handle(r) }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }
func withHandler(handle func(slog.Record) error) *wardenslog.Logger {
	return wardenslog.New(slog.New(handler{handle}))
}

// TestABrokenHandlerCostsItsLine: the request path does not notice, and the lines after it are written.
func TestABrokenHandlerCostsItsLine(t *testing.T) {
	for name, broken := range map[string]func() error{
		"panics":             func() error { panic("handler") },
		"ends the goroutine": func() error { runtime.Goexit(); return nil },
		"fails":              func() error { return io.ErrShortWrite },
	} {
		t.Run(name, func(t *testing.T) {
			calls, written := 0, 0
			log := withHandler(func(slog.Record) error {
				if calls++; calls%2 == 1 {
					return broken()
				}
				written++
				return nil
			})
			o, rejected := log.Limiter(), event(decision.Rejected, decision.Closed)
			for range 10 {
				o.Observe(rejected)
			}
			if err := log.Flush(t.Context()); err != nil || calls != 10 || written != 5 {
				t.Errorf("%v after %d calls, %d lines", err, calls, written)
			}
		})
	}
}

// TestABlockedHandlerHoldsNobodyUp: the observer returns at once, puts aside no more than it has room for, and goes on
// when the handler does.
func TestABlockedHandlerHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		lines, leftOut := 0, uint64(0)
		log := withHandler(func(r slog.Record) error {
			<-gate
			lines++
			r.Attrs(func(a slog.Attr) bool {
				if a.Key == "left_out" {
					leftOut += a.Value.Uint64()
				}
				return true
			})
			return nil
		})
		l := must(limiter.New(limiter.Config{Observer: log.Limiter()}))(t)
		l.Close()
		began := time.Now()
		for range 9 {
			for range 100 {
				l.TryAcquire(limiter.Task{})
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if time.Since(began) != 9*time.Second || l.Stats().Rejected != 900 {
			t.Error("requests waited for a log")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := log.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		close(gate)
		if err := log.Flush(t.Context()); err != nil || lines != 64 && lines != 65 {
			t.Errorf("%v, %d lines, with room for 64 and perhaps one being written", err, lines)
		}
		l.TryAcquire(limiter.Task{})
		if err := log.Flush(t.Context()); err != nil || uint64(lines)+leftOut != 901 {
			t.Errorf("%v, %d lines and %d left out, want 901 in all", err, lines, leftOut)
		}
		if err := log.Flush(t.Context()); err != nil {
			t.Errorf("Flush of nothing: %v", err)
		}
	})
}
