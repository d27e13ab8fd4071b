// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file logs a dispatcher's events, and records without their payload and header values.

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// NewLogger returns an Observer that writes events to a log, as "dispatch: gave_up" with the event's fields. Events that need
// attention are warnings: GaveUp, DeadLetterFailed, Fenced, Foreign, CallbackFailed, LedgerError, TakeFailed, FetchFailed,
// CommitFailed, Stalled, and Drained with an error. Started, Succeeded, Skipped and Committed are debug messages; the rest is
// info. Of each kind at most ten lines a second are written, and left_out counts the events without a line; debug messages are
// not limited. A panic's stack is part of the line. A handler's error and the domain's name are logged unchanged: keep secrets
// out of them.
//
// It writes in the goroutine that caused the event, so the work waits for the slog.Handler. One logger serves any number of
// dispatchers. Nil: slog.Default().
func NewLogger(to *slog.Logger) Observer { return &logger{to: to, spent: map[Kind]second{}} }

type logger struct {
	to *slog.Logger

	mu    sync.Mutex // guards all below
	spent map[Kind]second
}

// second counts the lines of one second.
type second struct {
	began   time.Time
	lines   int
	leftOut int // since the last line
}

const linesPerSecond = 10

func (l *logger) Observe(e Event) {
	ctx, level, to := context.Background(), e.level(), l.to
	if to == nil {
		to = slog.Default()
	}
	if !to.Enabled(ctx, level) {
		return
	}
	attrs := e.attrs()
	if level > slog.LevelDebug {
		leftOut, ok := l.spend(e.Kind)
		if !ok {
			return
		}
		if leftOut > 0 {
			attrs = append(attrs, slog.Int("left_out", leftOut))
		}
	}
	if panicked := (*PanicError)(nil); errors.As(e.Err, &panicked) {
		attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
	}
	to.LogAttrs(ctx, level, "dispatch: "+string(e.Kind), attrs...)
}

// level is how much an event weighs.
func (e Event) level() slog.Level {
	switch e.Kind {
	case Started, Succeeded, Skipped, Committed:
		return slog.LevelDebug
	case GaveUp, DeadLetterFailed, Foreign, Fenced, CallbackFailed, LedgerError, TakeFailed, FetchFailed, CommitFailed, Stalled:
		return slog.LevelWarn
	case Drained:
		if e.Err != nil {
			return slog.LevelWarn
		}
	}
	return slog.LevelInfo
}

// spend takes one of the second's lines, and returns how many events had none since the last line.
func (l *logger) spend(kind Kind) (leftOut int, ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.spent[kind]
	defer func() { l.spent[kind] = s }()
	if now.Sub(s.began) >= time.Second {
		s.began, s.lines = now, 0
	}
	if s.lines == linesPerSecond {
		s.leftOut++
		return 0, false
	}
	s.lines++
	leftOut, s.leftOut = s.leftOut, 0
	return leftOut, true
}

// LogValue implements slog.LogValuer: domain, offset, payload size and time, without the contents.
func (r Record) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("domain", r.Domain), slog.Int64("offset", r.Offset), slog.Int("bytes", len(r.Payload))}
	if !r.Time.IsZero() {
		attrs = append(attrs, slog.Time("time", r.Time))
	}
	return slog.GroupValue(attrs...)
}

// LogValue implements slog.LogValuer: the record, the token and the retry count.
func (j Job) LogValue() slog.Value {
	token, retries := slog.Uint64("token", uint64(j.Lease.Token)), slog.Int("retry_count", j.Lease.RetryCount)
	return slog.GroupValue(slog.Any("record", j.Record), token, retries)
}

// LogValue implements slog.LogValuer: the partition, the record, the retry count and the error.
func (l DeadLetter) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("partition", l.Partition), slog.Any("record", l.Record), slog.Int("retry_count", l.Lease.RetryCount),
	}
	if l.Err != nil {
		attrs = append(attrs, slog.String("err", l.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}
