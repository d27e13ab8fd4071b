// SPDX-License-Identifier: Apache-2.0

package patience

import (
	"fmt"
	"strings"
	"testing"
)

// Whoever chooses the hosts does not choose how much is kept of them. Those that answered last are kept, and each answer excuses once.
func TestHostsAreBounded(t *testing.T) {
	h := hosts{of: map[string]*host{}}
	h.answered(strings.Repeat("x", longestHost+1))
	for i := range 2 * mostHosts {
		h.answered(fmt.Sprint(i))
		h.answered("busy")
	}
	if len(h.of) != mostHosts || h.record("1") != (Record{}) || h.record("busy").answers != 2*mostHosts {
		t.Errorf("H14: %d hosts are kept", len(h.of))
	}
	since := h.record("busy")
	if h.excuse("busy", since) || h.excuse("1", Record{}) {
		t.Error("H14: an excuse without an answer")
	}
	h.answered("busy")
	h.answered("busy")
	if !h.excuse("busy", since) || !h.excuse("busy", since) || h.excuse("busy", since) || h.excuse("busy", h.record("busy")) {
		t.Error("H14: two answers are two excuses")
	}
}
