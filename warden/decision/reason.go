// SPDX-License-Identifier: Apache-2.0

// Reasons of a decision, for display and not for computation.

package decision

import (
	"log/slog"
	"strconv"
)

// Direction is the change that a [Reason] supports.
type Direction string

// The directions.
const (
	Tighten Direction = "tighten" // fewer tasks, or more shedding
	Hold    Direction = "hold"    // no change
	Relax   Direction = "relax"   // more tasks, or less shedding
)

// Reason is one reason of a decision: a code, the dominant signal, its value, and the direction. Its parts are not readable
// except for display and logs, so that a limiter cannot decide by them.
type Reason struct {
	code, signal string
	value        float64
	direction    Direction
	detail       string
}

// NewReason returns a reason. code is a short lower-case word to group by, such as "queueing"; signal names the dominant
// measurement and its unit, such as "lag_p90_seconds"; value is that measurement, any number.
func NewReason(code, signal string, value float64, direction Direction) Reason {
	return Reason{code: code, signal: signal, value: value, direction: direction}
}

// Because returns the reason with a sentence that says more than its value can, such as "orders-db: 10 of 10 in use, 7 wait
// 40ms".
func (r Reason) Because(sentence string) Reason {
	r.detail = sentence
	return r
}

// Code returns the reason's code.
func (r Reason) Code() string { return r.code }

// String returns the reason on one line: "queueing: lag_p90_seconds=0.012 (tighten)", or with its sentence:
// "pool_full: orders-db: 10 of 10 in use, 7 wait 40ms (tighten)". It allocates.
func (r Reason) String() string {
	if r.detail != "" {
		return r.code + ": " + r.detail + " (" + string(r.direction) + ")"
	}
	return r.code + ": " + r.signal + "=" + strconv.FormatFloat(r.value, 'g', 4, 64) + " (" + string(r.direction) + ")"
}

// LogValue returns the parts as a group: code, signal, value, direction, and detail if there is a sentence. It allocates.
func (r Reason) LogValue() slog.Value {
	parts := []slog.Attr{
		slog.String("code", r.code),
		slog.String("signal", r.signal),
		slog.Float64("value", r.value),
		slog.String("direction", string(r.direction)),
	}
	if r.detail != "" {
		parts = append(parts, slog.String("detail", r.detail))
	}
	return slog.GroupValue(parts...)
}
