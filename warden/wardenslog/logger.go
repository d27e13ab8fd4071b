// SPDX-License-Identifier: Apache-2.0

// The logger: it bounds the lines per second, and writes them on its own goroutine, so that no request waits for a log.

package wardenslog

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	linesPerSecond = 10 // of samples, and as many of changes
	linesWaiting   = 64 // for the handler
)

// Logger makes observers of limiters and sets, and writes their lines. All methods are safe for concurrent use. It must come
// from [New].
type Logger struct {
	handler slog.Handler

	mu               sync.Mutex // guards all below and the state of all observers; never held while the handler is called
	samples, changes budget
	leftOut          uint64 // events without a line since the last line with left_out
	waiting          []line
	writing          bool          // a goroutine is in write
	idle             chan struct{} // closed when writing ends; nil if nobody waits for that
}

// line is a record still to be formatted: the slow part is left to the writing goroutine.
type line struct {
	at      time.Time
	level   slog.Level
	text    string
	attrs   func() []slog.Attr
	counts  bool // it has the attribute left_out
	leftOut uint64
}

// New returns a logger that writes to logger; nil: slog.Default() at the time of the call. It starts no goroutine.
func New(logger *slog.Logger) *Logger {
	if logger == nil {
		logger = slog.Default()
	}
	return &Logger{handler: logger.Handler()}
}

// Flush waits until every line queued before is written, or ctx ends; then it returns ctx's error. Call it before the program
// ends.
func (l *Logger) Flush(ctx context.Context) error {
	l.mu.Lock()
	if !l.writing {
		l.mu.Unlock()
		return nil
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// budget is a number of lines for each second.
type budget struct {
	second int64
	spent  int
}

func (b *budget) spend(at time.Time) bool {
	if second := at.Unix(); second > b.second {
		b.second, b.spent = second, 0
	}
	b.spent++
	return b.spent <= linesPerSecond
}

// sampleLocked reports whether this second has a line left for a sample, and counts the event otherwise.
func (l *Logger) sampleLocked(at time.Time) bool { return l.spendLocked(&l.samples, at) }

// changeLocked is sampleLocked for changes.
func (l *Logger) changeLocked(at time.Time) bool { return l.spendLocked(&l.changes, at) }

func (l *Logger) spendLocked(b *budget, at time.Time) bool {
	if b.spend(at) {
		return true
	}
	l.leftOut++
	return false
}

// putLocked queues a line, unless too many wait for the handler.
func (l *Logger) putLocked(n line) {
	if len(l.waiting) >= linesWaiting {
		l.leftOut++
		return
	}
	if n.counts {
		n.leftOut, l.leftOut = l.leftOut, 0
	}
	l.waiting = append(l.waiting, n)
	if !l.writing {
		l.writing = true
		go l.write()
	}
}

// write calls the handler until no line waits. A line in which the handler fails, panics or ends the goroutine is left out;
// another goroutine continues after it.
func (l *Logger) write() {
	n, ok := l.next()
	written := false
	defer func() {
		if ok && !written {
			_ = recover()
			l.mu.Lock()
			l.leftOut += n.leftOut + 1
			l.mu.Unlock()
			go l.write()
		}
	}()
	for ok {
		written = false
		if err := l.handle(n); err != nil {
			return
		}
		written = true
		n, ok = l.next()
	}
}

// next returns the oldest line that waits; without one, writing has ended.
func (l *Logger) next() (line, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.writing, l.waiting = false, nil
		if l.idle != nil {
			close(l.idle)
			l.idle = nil
		}
		return line{}, false
	}
	n := l.waiting[0]
	l.waiting = l.waiting[1:]
	return n, true
}

func (l *Logger) handle(n line) error {
	ctx := context.Background()
	if !l.handler.Enabled(ctx, n.level) {
		return nil
	}
	r := slog.NewRecord(n.at, n.level, n.text, 0)
	r.AddAttrs(n.attrs()...)
	if n.counts {
		r.AddAttrs(slog.Uint64("left_out", n.leftOut))
	}
	return l.handler.Handle(ctx, r)
}

// request returns the attributes of a line about one request. Its ID is request_id at the top, so that one search finds all
// lines.
func request(id string, attrs ...slog.Attr) []slog.Attr {
	if id == "" {
		return attrs
	}
	return append([]slog.Attr{slog.String("request_id", short(id))}, attrs...)
}

// short bounds what a client may have sent.
func short(s string) string {
	const longest = 256 // bytes
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
