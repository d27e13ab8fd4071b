// Reasons of a decision, for display and not for computation.

package decision

import (
	"fmt"
	"log/slog"
	"strconv"
)

// Direction is the change that a [Reason] supports.
type Direction int8

// The directions.
const (
	Tighten Direction = -1 // fewer tasks, or more shedding
	Hold    Direction = 0  // no change
	Relax   Direction = 1  // more tasks, or less shedding
)

// String returns "tighten", "hold" or "relax".
func (d Direction) String() string {
	switch d {
	case Tighten:
		return "tighten"
	case Hold:
		return "hold"
	case Relax:
		return "relax"
	}
	return fmt.Sprintf("Direction(%d)", int8(d))
}

// Reason is one reason of a decision: a code, the dominant signal, its value, and the direction. Its parts are not readable
// except for display and logs, so that a limiter cannot decide by them.
type Reason struct {
	code, signal string
	value        float64
	direction    Direction
}

// NewReason returns a reason. code is a short lower-case word to group by, such as "queueing"; signal names the dominant
// measurement and its unit, such as "lag_p90_seconds"; value is that measurement, any number.
func NewReason(code, signal string, value float64, direction Direction) Reason {
	return Reason{code, signal, value, direction}
}

// Code returns the reason's code.
func (r Reason) Code() string { return r.code }

// String returns the reason on one line: "queueing: lag_p90_seconds=0.012 (tighten)". It allocates.
func (r Reason) String() string {
	return r.code + ": " + r.signal + "=" + strconv.FormatFloat(r.value, 'g', 4, 64) + " (" + r.direction.String() + ")"
}

// LogValue returns the parts as a group: code, signal, value, direction. It allocates.
func (r Reason) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("code", r.code),
		slog.String("signal", r.signal),
		slog.Float64("value", r.value),
		slog.String("direction", r.direction.String()),
	)
}
