// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file is the log: which event weighs what, what of a storm is written, and what is never in it; all in virtual time.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// lines is a log whose lines can be asked for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}

// of returns the lines of a kind.
func (l *lines) of(t testing.TB, kind dispatch.Kind) (found []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for text := range strings.Lines(l.text.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line["msg"] == "dispatch: "+string(kind) {
			found = append(found, line)
		}
	}
	return found
}

// A partition's life with a failure, a panic, a dead letter that is refused at first, and a loss.
func TestLoggerTellsALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all lines
		letters := 0
		c := consume(t, dispatch.Config{
			Observer: dispatch.NewLogger(all.logger(slog.LevelDebug)),
			Handler: func(_ context.Context, job dispatch.Job) error {
				switch {
				case job.Record.Domain == "panics" && job.Lease.RetryCount == 0:
					panic("oops")
				case job.Record.Domain == "late" && time.Since(job.Lease.AcquiredAt) < time.Second:
					return dispatch.Later(time.Second)
				case job.Record.Domain == "bad":
					return fmt.Errorf("%w: not an order", dispatch.ErrPermanent)
				}
				time.Sleep(time.Second)
				return nil
			},
			DeadLetter: func(context.Context, dispatch.DeadLetter) error {
				if letters++; letters == 1 {
					return errLost
				}
				return nil
			},
		})
		take := c.give(dispatch.Partition{Name: "orders-3", Ledger: memory(t, 5), Source: fill("fine", "panics", "late", "bad")})
		time.Sleep(time.Minute)
		s := c.Stats()[0]
		equal(t, "held", s.Held, true)
		equal(t, "permanent", s.Permanent, 1)
		equal(t, "gave up", s.GaveUp, 1)
		equal(t, "died", s.Died, 0)
		equal(t, "postponed", s.Postponed, 1)
		equal(t, "dead letters refused", s.DeadLetterFailed, 1)
		take(dispatch.Lost("orders-3", errDead))
		c.mustStop(t)
		for _, want := range []struct {
			kind  dispatch.Kind
			level string
			n     int
			err   string
		}{
			{dispatch.Taken, "INFO", 1, ""},
			{dispatch.Started, "DEBUG", 6, ""},
			{dispatch.Succeeded, "DEBUG", 3, ""},
			{dispatch.Retrying, "INFO", 1, "dispatch: panic: oops"},
			{dispatch.Postponed, "INFO", 1, ""},
			{dispatch.GaveUp, "WARN", 1, "dispatch: permanent failure: not an order"},
			{dispatch.DeadLetterFailed, "WARN", 1, errLost.Error()},
			{dispatch.DeadLettered, "INFO", 1, "dispatch: permanent failure: not an order"},
			{dispatch.Drained, "WARN", 1, "dispatch: partition orders-3 lost: " + errDead.Error()},
		} {
			found := all.of(t, want.kind)
			equal(t, fmt.Sprint("lines of ", want.kind), len(found), want.n)
			for _, line := range found {
				got, _ := line["err"].(string)
				if line["level"] != want.level || line["name"] != "orders-3" || got != want.err {
					t.Errorf("%v: %v", want.kind, line)
				}
			}
		}
		equal(t, "a success took", all.of(t, dispatch.Succeeded)[0]["took"], any(float64(time.Second)))
		if stack, _ := all.of(t, dispatch.Retrying)[0]["stack"].(string); !strings.Contains(stack, "TestLoggerTellsALife") {
			t.Errorf("the panic's stack: %q", stack)
		}
	})
}

// Of a kind ten lines a second are written, of debugging all; the next line says how many are missing.
func TestLoggerBoundsAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all lines
		logger := dispatch.NewLogger(all.logger(slog.LevelDebug))
		for range 2 {
			for i := range int64(25) {
				logger.Observe(dispatch.Event{Kind: dispatch.LedgerError, Offset: i, Err: errLost})
				logger.Observe(dispatch.Event{Kind: dispatch.Started, Offset: i})
			}
			logger.Observe(dispatch.Event{Kind: dispatch.Fenced})
			time.Sleep(time.Second)
		}
		storm := all.of(t, dispatch.LedgerError)
		equal(t, "of the storm", len(storm), 20)
		for i, line := range storm {
			var want any
			if i == 10 {
				want = 15.0
			}
			equal(t, fmt.Sprint("left out before line ", i), line["left_out"], want)
		}
		equal(t, "for debugging", len(all.of(t, dispatch.Started)), 50)
		equal(t, "of another kind", len(all.of(t, dispatch.Fenced)), 2)

		var some lines
		logger = dispatch.NewLogger(some.logger(slog.LevelWarn))
		logger.Observe(dispatch.Event{Kind: dispatch.Drained})
		logger.Observe(dispatch.Event{Kind: dispatch.Drained, Err: dispatch.ErrDrain})
		equal(t, "below the level", len(some.of(t, dispatch.Drained)), 1)
	})
}

// A logger of nil writes to the default one.
func TestLoggerZero(t *testing.T) {
	var all lines
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(all.logger(slog.LevelInfo))
	dispatch.NewLogger(nil).Observe(dispatch.Event{Kind: dispatch.Fenced, Name: "p"})
	if found := all.of(t, dispatch.Fenced); len(found) != 1 || found[0]["name"] != "p" {
		t.Errorf("lines: %v", found)
	}
}

// Neither payloads nor headers are in a log, whatever of a record is logged.
func TestLogsHaveNoPayload(t *testing.T) {
	secret, encoded := []byte("4111 1111 1111 1111"), "NDExMSAxMTExIDExMTEgMTExMQ"
	record := dispatch.Record{
		Domain: "ann", Offset: 7, Payload: secret, Time: time.Unix(0, 0),
		Headers: []dispatch.Header{{Key: "authorization", Value: secret}},
	}
	job, letter := dispatch.Job{Record: record}, dispatch.DeadLetter{Record: record, Err: errLost}
	var all bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&all, nil), slog.NewTextHandler(&all, nil)} {
		logger := slog.New(handler)
		logger.Info("all", "record", record, "job", job, "letter", letter)
	}
	got := all.String()
	for _, forbidden := range []string{string(secret), encoded, fmt.Sprintf("%d", secret), "authorization"} {
		if strings.Contains(got, forbidden) {
			t.Errorf("%q is in the log: %s", forbidden, got)
		}
	}
	if n := strings.Count(got, "bytes"); n != 6 || !strings.Contains(got, errLost.Error()) {
		t.Errorf("a record is not told of: %s", got)
	}
}

// Suspects are counted while they wait for their trial and while they are on it, at no other time; one without an attempt left
// has died.
func TestStatsCountSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for attempts, want := range [][]int{{3, 2, 1, 0}, {0, 0, 0, 0}} { // that they have had before
			ledger, log, ctx := memory(t, 1), fill("a", "b", "c", "ordinary"), context.Background()
			died(t, ledger, "a", "b", "c")
			for l := range ledger.Held(ctx) {
				if attempts > 0 {
					_, _ = ledger.Fail(ctx, l.Domain, l.Token)
				}
			}
			time.Sleep(time.Minute)
			r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{Handler: taking(time.Second)})
			var counts []int
			for range want {
				time.Sleep(500 * time.Millisecond)
				counts = append(counts, r.Stats().Suspects)
				time.Sleep(500 * time.Millisecond)
			}
			same(t, "suspects", counts, want...)
			r.mustStop(t)
			s := r.Stats()
			equal(t, "died", s.Died, uint64(3*attempts))
			equal(t, "gave up", s.GaveUp, s.Died)
			equal(t, "held after Run", s.Held, false)
		}
	})
}

// A partition that cannot be taken is not held; one that is lost before it was taken is told of all the same.
func TestLostBeforeTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory(t, 5), fill("a"))
		p.fails(errLost, "Committed")
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{})
		time.Sleep(500 * time.Millisecond)
		equal(t, "held", r.Stats().Held, false)
		p.fails(dispatch.Lost("p", errDead), "Committed")
		if err := r.ended(); !errors.Is(err, dispatch.ErrLost) {
			t.Errorf("Run: %v", err)
		}
		var kinds []dispatch.Kind
		for _, e := range r.seen.all {
			kinds = append(kinds, e.Kind)
		}
		if kinds = slices.Compact(kinds); !slices.Equal(kinds, []dispatch.Kind{dispatch.TakeFailed, dispatch.Drained}) {
			t.Errorf("told: %v", kinds)
		}
	})
}
