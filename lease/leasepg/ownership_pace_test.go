// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// This file is about a partition that cannot be worked on: it is tried again in time, and not in a loop.

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasepg"
)

func TestOwnershipPace(t *testing.T) {
	for what, fails := range map[string]error{"Open fails": errors.New("not now"), "work returns": nil} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var opened []time.Time // by one goroutine after the other
			o := must(leasepg.OpenGroup(t.Context(), leasepg.GroupConfig{
				Conn: dedicated(t), Group: t.Name(), Names: []string{"a"}, Session: 400 * time.Millisecond,
				Open: func(context.Context, string) (dispatch.Partition, error) {
					if opened = append(opened, time.Now()); len(opened) == 5 {
						cancel()
					}
					return dispatch.Partition{}, fails
				},
			}))(t)
			noError(t, o.Hold(ctx, func(context.Context, dispatch.Partition) {}))
			const beat = 100 * time.Millisecond
			if took := opened[4].Sub(opened[0]); took < 3*beat {
				t.Errorf("opened five times in %v, a question is asked every %v", took, beat)
			}
		})
	}
}
