// SPDX-License-Identifier: Apache-2.0

// Pools in a sample: what they tell, and what becomes of one that lies, panics or never answers.

package monitor

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestPoolsInASample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, asked := make(chan struct{}), 0
		s, err := New([]Pool{
			{Name: "db", Stats: func() PoolStats { return PoolStats{InUse: 3, Max: 10} }},
			{Name: "panics", Part: "reports", Stats: func() PoolStats { panic("no") }},
			{Name: "blocks", Stats: func() PoolStats { asked++; <-hang; return PoolStats{InUse: 1, Max: 2} }},
			{Name: "negative", Stats: func() PoolStats { return PoolStats{InUse: -1, Max: 10} }},
			{Name: "more than there are", Stats: func() PoolStats { return PoolStats{InUse: 11, Max: 10} }},
			{Name: "nobody waits less than nobody", Stats: func() PoolStats { return PoolStats{Waiting: Reading{-1, true}} }},
			{Name: "waits", Stats: func() PoolStats { return PoolStats{Waiting: Reading{7, true}} }},
		}...)
		if err != nil {
			t.Fatal(err)
		}
		want := []PoolReading{
			{Name: "db", PoolStats: PoolStats{InUse: 3, Max: 10}},
			{Name: "panics", Part: "reports", Problem: "panicked"},
			{Name: "blocks", Problem: "blocked"},
			{Name: "negative", Problem: "invalid"},
			{Name: "more than there are", Problem: "invalid"},
			{Name: "nobody waits less than nobody", Problem: "invalid"},
			{Name: "waits", PoolStats: PoolStats{Waiting: Reading{7, true}}},
		}
		for range 3 {
			before := time.Now()
			got := s.Sample()
			if diff := cmp.Diff(want, got.Pools); diff != "" {
				t.Fatal("M6:", diff)
			}
			if took := time.Since(before); took > poolTimeout {
				t.Errorf("M6: a pool that blocks held a sample up for %v of virtual time", took)
			}
			synctest.Wait()
		}
		if asked != 1 {
			t.Errorf("M6: a pool that had not answered was asked %d times", asked)
		}
		close(hang)
		synctest.Wait()
		want[2] = PoolReading{Name: "blocks", PoolStats: PoolStats{InUse: 1, Max: 2}}
		if diff := cmp.Diff(want, s.Sample().Pools); diff != "" {
			t.Errorf("after it has answered: %s", diff)
		}
	})
}

func TestPoolsThatAreRefused(t *testing.T) {
	tells := func() PoolStats { return PoolStats{} }
	many := make([]Pool, 65)
	for i := range many {
		many[i] = Pool{Name: fmt.Sprint(i), Stats: tells}
	}
	for field, pools := range map[string][]Pool{
		"Pools":          many,
		"Pools[0].Name":  {{Name: "", Stats: tells}},
		"Pools[1].Name":  {{Name: "db", Stats: tells}, {Name: "db", Stats: tells}},
		"Pools[0].Stats": {{Name: "db", Stats: nil}},
	} {
		var invalid *decision.InvalidError
		if _, err := New(pools...); !errors.As(err, &invalid) || invalid.Field != "monitor."+field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
