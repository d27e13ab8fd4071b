package dispatch

// This file is how a dispatcher's events become lines of a log, and what of a record a log may have: never its payload or a header's value.

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Logger is an Observer that logs, as "dispatch: GaveUp" with the event's fields. What needs somebody is a warning: GaveUp, DeadLetterFailed,
// Fenced, Foreign, RateFailed, OwnerFailed, LedgerError, TakeFailed, FetchFailed, CommitFailed, and Drained with an error. What happens to each record that is well, and
// Committed, is for debugging; the rest is information. Of a kind at most ten lines a second are written, and left_out says how many
// events were not; of those for debugging, all. A panic's stack is in the line of the failure. The error of a handler is logged as it is: what must not
// be in a log must not be in it, nor in the name of a domain.
//
// It writes in the goroutine that did what is told, so the work waits for the slog.Handler. One Logger serves any number of
// dispatchers. It must not be copied.
type Logger struct {
	To *slog.Logger // nil: slog.Default()

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

// Observe implements Observer.
func (l *Logger) Observe(e Event) {
	ctx, level, to := context.Background(), e.level(), l.To
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
	to.LogAttrs(ctx, level, "dispatch: "+e.Kind.String(), attrs...)
}

// level is how much an event weighs.
func (e Event) level() slog.Level {
	switch e.Kind {
	case Started, Succeeded, Skipped, Committed:
		return slog.LevelDebug
	case GaveUp, DeadLetterFailed, Foreign, Fenced, RateFailed, OwnerFailed, LedgerError, TakeFailed, FetchFailed, CommitFailed:
		return slog.LevelWarn
	case Drained:
		if e.Err != nil || e.Count > 0 {
			return slog.LevelWarn
		}
	}
	return slog.LevelInfo
}

// spend takes one of the second's lines, and says how many events have had none since the last.
func (l *Logger) spend(kind Kind) (leftOut int, ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spent == nil {
		l.spent = map[Kind]second{}
	}
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

// LogValue implements slog.LogValuer: where the record is and how large, not what it carries.
func (r Record) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("domain", r.Domain), slog.Int64("offset", r.Offset), slog.Int("bytes", len(r.Payload))}
	if !r.Time.IsZero() {
		attrs = append(attrs, slog.Time("time", r.Time))
	}
	return slog.GroupValue(attrs...)
}

// LogValue implements slog.LogValuer: the record's, the fence, and the attempt.
func (j Job) LogValue() slog.Value {
	return slog.GroupValue(slog.Any("record", j.Record), slog.Uint64("token", uint64(j.Lease.Token)), slog.Int("retry_count", j.Lease.RetryCount))
}

// LogValue implements slog.LogValuer: where it lay, the record's, and why it was given up.
func (l DeadLetter) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("partition", l.Partition), slog.Any("record", l.Record), slog.Int("retry_count", l.Lease.RetryCount)}
	if l.Err != nil {
		attrs = append(attrs, slog.String("err", l.Err.Error()))
	}
	return slog.GroupValue(attrs...)
}
