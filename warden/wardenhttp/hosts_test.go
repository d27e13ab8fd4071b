// SPDX-License-Identifier: Apache-2.0

package wardenhttp

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Whoever chooses the hosts does not choose how much is kept of them, and what is kept goes on being true.
func TestHostsAreBounded(t *testing.T) {
	var h hosts
	before := time.Now().Add(-1)
	h.answered(strings.Repeat("x", longestHost+1))
	for i := range 2 * mostHosts {
		h.answered(fmt.Sprint(i))
	}
	if len(h.last) != mostHosts || !h.haveAnswered("1", before) || h.haveAnswered(fmt.Sprint(2*mostHosts-1), before) {
		t.Errorf("H14: %d hosts are kept", len(h.last))
	}
	known := time.Now()
	if h.answered("1"); !h.haveAnswered("1", known.Add(-1)) || h.haveAnswered("1", time.Now().Add(time.Hour)) {
		t.Error("H14: when a host has answered is not known")
	}
}
