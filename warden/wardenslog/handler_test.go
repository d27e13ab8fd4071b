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

// handler is a slog.Handler that does as it is told.
type handler struct{ handle func(slog.Record) error }

func (h handler) Enabled(context.Context, slog.Level) bool      { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error { return h.handle(r) }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }
func withHandler(handle func(slog.Record) error) wardenslog.Config {
	return wardenslog.Config{PerSecond: 1000, Logger: slog.New(handler{handle})}
}

// TestABrokenHandlerCostsItsLine: the request path does not notice, and the lines after it are written.
func TestABrokenHandlerCostsItsLine(t *testing.T) {
	for name, broken := range map[string]func() error{
		"panics":             func() error { panic("handler") },
		"ends the goroutine": func() error { runtime.Goexit(); return nil },
		"fails":              func() error { return io.ErrShortWrite },
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			log := mustNew(t, withHandler(func(slog.Record) error {
				if calls++; calls%2 == 1 {
					return broken()
				}
				return nil
			}))
			for range 10 {
				log.Observe(event(decision.Rejected, decision.Closed))
			}
			if err := log.Flush(t.Context()); err != nil || calls != 10 || log.Stats() != (wardenslog.Stats{Written: 5, Failed: 5}) {
				t.Errorf("%v after %d calls: %+v", err, calls, log.Stats())
			}
		})
	}
}

// TestABlockedHandlerHoldsNobodyUp: the observer returns at once, puts aside no more than it has room for, and goes on
// when the handler does.
func TestABlockedHandlerHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		log := mustNew(t, withHandler(func(slog.Record) error { <-gate; return nil }))
		l := must(limiter.New(limiter.Config{Observer: log}))(t)
		l.Close()
		began := time.Now()
		for range 900 {
			l.TryAcquire(limiter.Task{})
		}
		synctest.Wait()
		if time.Since(began) != 0 || l.Stats().Rejected != 900 {
			t.Error("requests waited for a log")
		}
		if s := log.Stats(); s.Written != 0 || s.Dropped != 900-64 && s.Dropped != 900-65 {
			t.Errorf("%+v, with room for 64 lines and perhaps one being written", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := log.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		close(gate)
		if err := log.Flush(t.Context()); err != nil || log.Stats().Written+log.Stats().Dropped != 900 {
			t.Errorf("%v, %+v", err, log.Stats())
		}
		if err := log.Flush(t.Context()); err != nil {
			t.Errorf("Flush of nothing: %v", err)
		}
	})
}
