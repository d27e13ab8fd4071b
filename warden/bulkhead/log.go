// Errors in a structured log: like the limiter's rejections, with attributes of their own.

package bulkhead

import (
	"log/slog"
)

// LogValue returns the error as a group: compartment, phase, after and reason; in phase Queued also the rejection that
// explains the wait; request_id if set. It allocates.
func (e *TimeoutError) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("compartment", e.Compartment), slog.String("phase", e.Phase.String()), slog.Duration("after", e.After),
		slog.String("reason", e.Reason()),
	}
	if e.Rejection != nil {
		attrs = append(attrs, slog.Any("rejection", e.Rejection))
	}
	return slog.GroupValue(withRequest(attrs, e.RequestID)...)
}

// LogValue returns the error as a group: compartment, reason, err (the breaker's error), and request_id if set. It allocates.
func (e *BreakerOpenError) LogValue() slog.Value {
	return slog.GroupValue(withRequest([]slog.Attr{
		slog.String("compartment", e.Compartment), slog.String("reason", string(BreakerOpen)), slog.Any("err", e.Err),
	}, e.RequestID)...)
}

func withRequest(attrs []slog.Attr, id string) []slog.Attr {
	if id != "" {
		attrs = append(attrs, slog.String("request_id", id))
	}
	return attrs
}

// LogValue returns the error as a group: given and current. It allocates.
func (e *conflictError) LogValue() slog.Value {
	return slog.GroupValue(slog.Uint64("given", e.given), slog.Uint64("current", e.current))
}

// LogValue returns the error as a group: compartment. It allocates.
func (e *UnknownCompartmentError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("compartment", e.Compartment))
}
