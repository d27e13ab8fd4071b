// SPDX-License-Identifier: Apache-2.0

// The part of the model that says what a compartment does that does not enforce its bounds (B12, B13).

package bulkhead

import (
	"github.com/stopbank/stopbank/warden/decision"
)

// startWithoutSlot starts a call that finds no slot. The queue of a dry run is the calls beyond the slots that would not have
// been rejected.
func (m *setModel) startWithoutSlot(c *callModel) {
	p, t := c.pool, c.tenant
	if p.now.Mode == decision.DryRun {
		queue := max(0, t.withoutSlot-t.unwanted)
		wait := float64(p.usual) * float64(queue+1) / float64(max(1, p.now.Max))
		switch {
		case queue >= p.cfg.MaxQueue:
			c.would = "queue_overflow"
		case p.cfg.MaxWait > 0 && wait > float64(p.cfg.MaxWait):
			c.would = "timeout_queued"
		}
		if c.would != "" {
			t.unwanted++
			p.wouldBe[c.would]++
		}
	}
	m.start(c)
}
