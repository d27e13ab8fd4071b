// SPDX-License-Identifier: Apache-2.0

// Logs: the lines of a warden go where the configuration in force wants them.

package wardencaddy

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// output is a handler of logs that passes records to the logger of the configuration in force.
type output struct {
	to atomic.Pointer[slog.Logger] // nil: nobody listens yet
}

func (o *output) handler() slog.Handler {
	l := o.to.Load()
	if l == nil {
		return slog.DiscardHandler
	}
	return l.Handler()
}

// Enabled is that of the logger in force.
func (o *output) Enabled(ctx context.Context, level slog.Level) bool {
	return o.handler().Enabled(ctx, level)
}

// Handle passes the record on.
func (o *output) Handle(ctx context.Context, r slog.Record) error { return o.handler().Handle(ctx, r) }

// WithAttrs returns a handler with these attributes.
func (o *output) WithAttrs(attrs []slog.Attr) slog.Handler {
	return derived{o, func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) }}
}

// WithGroup returns a handler with this group.
func (o *output) WithGroup(name string) slog.Handler {
	return derived{o, func(h slog.Handler) slog.Handler { return h.WithGroup(name) }}
}

// derived is an output with attributes or groups.
type derived struct {
	*output
	of func(slog.Handler) slog.Handler
}

// Handle passes the record on.
func (d derived) Handle(ctx context.Context, r slog.Record) error {
	return d.of(d.handler()).Handle(ctx, r)
}

// WithAttrs returns a handler with these attributes as well.
func (d derived) WithAttrs(attrs []slog.Attr) slog.Handler {
	return derived{d.output, func(h slog.Handler) slog.Handler { return d.of(h).WithAttrs(attrs) }}
}

// WithGroup returns a handler with this group as well.
func (d derived) WithGroup(name string) slog.Handler {
	return derived{d.output, func(h slog.Handler) slog.Handler { return d.of(h).WithGroup(name) }}
}
