// The logger: it decides which lines are written, and writes them on its own goroutine, so that no request waits for a log.

package wardenslog

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
	"github.com/stopbank/stopbank/warden/internal/unit"
)

// Config describes a [Logger]. The zero value writes to slog.Default.
type Config struct {
	// Logger receives the lines; nil: slog.Default() at the time of New.
	Logger *slog.Logger
	// Every makes one in Every rejections a candidate for a sample, 1 or more; 0: 1, each of them.
	Every int
	// PerSecond is the maximum number of samples per second, and separately of changes, 1 to 1000; 0: 10.
	PerSecond int
	// Quiet is the time without a rejection after which an episode ends, 1 ms or more; 0: 10 s.
	Quiet time.Duration
	// Samples is the level of samples; nil: slog.LevelInfo.
	Samples slog.Leveler
}

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "wardenslog." + field, Value: value, Allowed: allowed}
}

// Logger observes limiters, makes observers of sets, and writes their lines. All methods are safe for concurrent use. It must come from [New].
type Logger struct {
	handler slog.Handler
	samples slog.Leveler
	every   uint64
	quiet   time.Duration
	epoch   time.Time // a second before New

	limiters names[limiterLog]

	spent   [kinds]budget
	leftOut atomic.Uint64 // samples without a line since the last line of one
	failed  atomic.Uint64
	written atomic.Uint64
	dropped atomic.Uint64

	mu      sync.Mutex // guards all below; never held while the handler is called
	waiting []line
	writing bool          // a goroutine is in write
	idle    chan struct{} // closed when writing ends; nil if nobody waits for that
}

// kind says which budget a line is paid from.
type kind uint8

const (
	change kind = iota
	sample
	kinds
)

// line is a record still to be formatted: the slow part is left to the writing goroutine.
type line struct {
	at    time.Time
	level slog.Leveler
	text  string
	attrs func() []slog.Attr
}

// room is how many lines may wait for the handler.
const room = 64

// New returns a logger. It starts no goroutine. The error is an [*InvalidError].
func New(cfg Config) (*Logger, error) {
	quiet := unit.Allowed(cfg.Quiet, unit.Network, 0, "0 (the default, 10s)")
	switch {
	case cfg.Every < 0:
		return nil, invalidField("Config.Every", cfg.Every, "1 or more, or 0 (the default, 1)")
	case cfg.PerSecond < 0 || cfg.PerSecond > 1000:
		return nil, invalidField("Config.PerSecond", cfg.PerSecond, "1 to 1000, or 0 (the default, 10)")
	case quiet != "":
		return nil, invalidField("Config.Quiet", cfg.Quiet, quiet)
	}
	if typed := nilcheck.Optional(cfg.Samples); typed != "" {
		return nil, invalidField("Config.Samples", typed, "nil (slog.LevelInfo) or a level")
	}
	l := &Logger{
		samples: cfg.Samples, every: uint64(max(1, cfg.Every)), quiet: cfg.Quiet, epoch: time.Now().Add(-time.Second), // no event is at 0
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	l.handler = cfg.Logger.Handler()
	if l.samples == nil {
		l.samples = slog.LevelInfo
	}
	if l.quiet == 0 {
		l.quiet = 10 * time.Second
	}
	if cfg.PerSecond == 0 {
		cfg.PerSecond = 10
	}
	for i := range l.spent {
		l.spent[i].most = uint64(cfg.PerSecond)
	}
	return l, nil
}

// Stats counts lines by what happened to them.
type Stats struct {
	// Written lines were accepted by the handler, or are below its level.
	Written uint64
	// Dropped lines exceeded the changes of their second, or found too many lines waiting for the handler.
	Dropped uint64
	// Failed lines were lost in the handler: it returned an error, panicked, or ended its goroutine.
	Failed uint64
}

// Stats returns a copy of the counters. It does not block.
func (l *Logger) Stats() Stats {
	return Stats{Written: l.written.Load(), Dropped: l.dropped.Load(), Failed: l.failed.Load()}
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

// change has a change written, if the second's number is not used up.
func (l *Logger) change(now time.Duration, n line) {
	if !l.spent[change].spend(now) {
		l.dropped.Add(1)
		return
	}
	l.put(n)
}

// sample has a sample written, whose line in the second's number is taken already.
func (l *Logger) sample(n line) {
	n.level = l.samples
	if !l.put(n) {
		l.leftOut.Add(1)
	}
}

// sinceEpoch is never 0.
func (l *Logger) sinceEpoch(at time.Time) time.Duration { return max(1, at.Sub(l.epoch)) }

// put has a line written, if the handler is not too far behind.
func (l *Logger) put(n line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= room {
		l.dropped.Add(1)
		return false
	}
	l.waiting = append(l.waiting, n)
	if !l.writing {
		l.writing = true
		go l.write()
	}
	return true
}

// write calls the handler until no line waits. A line in which the handler panics or ends the goroutine is lost; another
// goroutine goes on behind it.
func (l *Logger) write() {
	done := false
	defer func() {
		if !done {
			_ = recover()
			l.failed.Add(1)
			go l.write()
		}
	}()
	for {
		n, ok := l.next()
		if !ok {
			done = true
			return
		}
		if err := l.handle(n); err != nil {
			l.failed.Add(1)
			continue
		}
		l.written.Add(1)
	}
}

// next takes the oldest line that waits; without one, writing has ended.
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
	ctx, level := context.Background(), n.level.Level()
	if !l.handler.Enabled(ctx, level) {
		return nil
	}
	r := slog.NewRecord(n.at, level, n.text, 0)
	r.AddAttrs(n.attrs()...)
	return l.handler.Handle(ctx, r)
}

// budget is a number of lines for each second: the second in the upper bits, how many were spent in it in the lower.
type budget struct {
	most uint64
	word atomic.Uint64
}

const countBits = 16

// spend takes one line of this second's, if there is one left.
func (b *budget) spend(now time.Duration) bool {
	second := uint64(now / time.Second)
	for {
		w := b.word.Load()
		next := w + 1
		if w>>countBits < second {
			next = second<<countBits | 1
		} else if w&(1<<countBits-1) >= b.most {
			return false
		}
		if b.word.CompareAndSwap(w, next) {
			return true
		}
	}
}
