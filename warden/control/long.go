// SPDX-License-Identifier: Apache-2.0

// Executions that run for long, such as streams and calls of a dependency that hangs: the limit is for what ends, and they come
// on top.

package control

import (
	"fmt"
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// manyLong is how many the limit makes up for in full: each of them holds memory, and a dependency that hangs has no end of them.
const manyLong = 512

// long are the executions of which the monitor says that they have run for long.
type long struct {
	slots  float64 // on top of the limit of what ends
	parked float64 // that have no slot
	last   monitor.Service
}

// observe takes note of a sample. Where nothing has ended yet, and processors are not calm, none is added: it may be that all
// compute. In one step come no more than the limit, which is ends and slots, and no more than half of them go (C4).
func (l *long) observe(s monitor.Service, sure bool, ends float64) {
	l.last, l.parked = s, finite(float64(s.Parked))
	n := min(finite(float64(s.Long)), 2*l.slots+ends)
	if !sure {
		n = min(n, l.slots)
	}
	l.slots = max(n, math.Floor(l.slots/2))
}

// besides returns the limit for what ends, of which ends would be right, beside them. Beyond manyLong it falls as their number
// rises: what ends goes on, and what hangs comes ever more slowly.
func (l *long) besides(ends float64) float64 {
	if l.slots <= manyLong {
		return ends
	}
	return max(ends*manyLong/l.slots, min(ends, 1))
}

// beyond reports whether the limit does not make up for all of them.
func (l *long) beyond() bool { return l.slots < finite(float64(l.last.Long)) || l.slots > manyLong }

// reason says how many there are, and which is the oldest: "512 run for long, the oldest GET /events for 1h3m0s".
func (l *long) reason(d decision.Direction) decision.Reason {
	of := ""
	if l.last.LongName != "" {
		of = " " + l.last.LongName
	}
	said := fmt.Sprintf("%d run for long, the oldest%s for %v", l.last.Long, of, l.last.LongFor.Round(time.Second))
	return decision.NewReason("held", "service_long", float64(l.last.Long), d).Because(said)
}
