// SPDX-License-Identifier: Apache-2.0

// A handler that never returns, and a source that returns batches out of order.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// BadInput checks that what goes wrong outside of an engine is named, and that the other keys go on: batches in disorder are
// refused and read again, and a handler that never returns stops its key alone, until the next owner does the record under a
// greater token. Open is that of Overlap.
func BadInput(t *testing.T, open func(t testing.TB) Shared) {
	t.Helper()
	const keys, each = 4, 3
	s := open(t)
	for i := range keys * each {
		s.Append(fmt.Sprint("k", i%keys), fmt.Append(nil, i))
	}
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	soon := func(cfg *dispatch.Config) { cfg.AttemptTimeout, cfg.DrainTimeout = attemptTimeout, attemptTimeout }
	first := follow(t, only{Source: &disorderly{Source: s.First.Source, times: 3}, Ledger: s.First.Ledger}, func(job dispatch.Job) {
		if string(job.Record.Payload) == "0" {
			<-hangs
		}
	}, soon)
	first.until("the other keys are done, and the reason why one is not is told", func() bool {
		return len(first.handled) == (keys-1)*each && first.refused > 0 && first.events["stalled working"] > 0
	})
	first.cancel()
	if err := first.ends(); !errors.Is(err, dispatch.ErrDrain) || !strings.Contains(err.Error(), "1 abandoned") {
		t.Errorf("the owner with the handler that never returns ended with %v, want ErrDrain with one abandoned", err)
	}
	second := follow(t, only(s.Second), nil, soon)
	second.until("the key is done", func() bool { return len(second.handled) == each })
	second.cancel()
	if err := second.ends(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(second.handled, []string{"0", "4", "8"}) {
		t.Errorf("done by the second owner: %q, want the first key's, in order", second.handled)
	}
	if first.tokens["k0"] >= second.tokens["k0"] {
		t.Errorf("token %d, and later %d", first.tokens["k0"], second.tokens["k0"])
	}
}

// disorderly returns the records of the first calls that bring several back to front.
type disorderly struct {
	dispatch.Source
	times int
}

func (s *disorderly) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	records, err := s.Source.Fetch(ctx, from, limit)
	if len(records) > 1 && s.times > 0 {
		s.times--
		slices.Reverse(records)
	}
	return records, err
}
