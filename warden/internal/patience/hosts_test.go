// SPDX-License-Identifier: Apache-2.0

package patience

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever chooses the hosts does not choose how much is kept of them. Those that answered last are kept, and what is kept is true.
func TestHostsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, began := hosts{answered: map[string]time.Time{}}, time.Now()
		h.note(strings.Repeat("x", longestHost+1))
		for i := range 2 * mostHosts {
			time.Sleep(time.Second)
			h.note(fmt.Sprint(i))
			h.note("busy")
		}
		last := fmt.Sprint(2*mostHosts - 1)
		if len(h.answered) != mostHosts || h.since("1", began) || !h.since("busy", began) || !h.since(last, began) {
			t.Errorf("H14: %d hosts are kept: %v", len(h.answered), h.answered)
		}
		if h.since(last, time.Now()) || !h.since(last, time.Now().Add(-1)) {
			t.Error("H14: when a host has answered is not known")
		}
	})
}
