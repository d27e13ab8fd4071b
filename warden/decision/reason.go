// Why control judged as it did, in a form that can be shown but not computed with.

package decision

import (
	"fmt"
	"log/slog"
	"strconv"
)

// Direction is what a [Reason] argued for.
type Direction int8

// The directions.
const (
	Tighten Direction = -1 // fewer tasks, or more shedding
	Hold    Direction = 0  // as before
	Relax   Direction = 1  // more tasks, or less shedding
)

// String is "tighten", "hold" or "relax".
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

// Reason is one ground of a decision: a code, the signal that dominated, its value, and what that argued for. It can be
// shown and logged, and nothing else: were its parts readable, a limiter could begin to judge by them.
type Reason struct {
	code, signal string
	value        float64
	direction    Direction
}

// NewReason makes a reason. code is a short word in lower case that tools can group by, such as "queueing"; signal names
// the reading that dominated and its unit, such as "lag_p90_seconds"; value is that reading, of any value.
func NewReason(code, signal string, value float64, direction Direction) Reason {
	return Reason{code, signal, value, direction}
}

// Code is the reason's code.
func (r Reason) Code() string { return r.code }

// String has all of it on one line: "queueing: lag_p90_seconds=0.012 (tighten)". It allocates.
func (r Reason) String() string {
	return r.code + ": " + r.signal + "=" + strconv.FormatFloat(r.value, 'g', 4, 64) + " (" + r.direction.String() + ")"
}

// LogValue has the parts as attributes: code, signal, value, direction. It allocates.
func (r Reason) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("code", r.code),
		slog.String("signal", r.signal),
		slog.Float64("value", r.value),
		slog.String("direction", r.direction.String()),
	)
}
