// SPDX-License-Identifier: Apache-2.0

// What a snapshot says of the last minute: rejections, health, and how long functions ran.

package bulkhead

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestHealthAndRejectionRateAreOfTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, Criticality: decision.Critical})
		reject := func(n int) {
			_, p, _ := a.Acquire(t.Context())
			for range n {
				_, _ = Do(t.Context(), a, nothing)
			}
			p.Release(nil)
		}
		for range 18 {
			_, _ = Do(t.Context(), a, nothing)
		}
		reject(1)
		if c := a.Snapshot(); c.RejectionRate != 0.05 || c.Unhealthy != "" {
			t.Errorf("5 %% is allowed: %v, %+v", c.RejectionRate, c.Unhealthy)
		}
		reject(1)
		if c := a.Snapshot(); c.RejectionRate <= 0.05 || c.Unhealthy == "" || !containsAll(c.Unhealthy, "critical", "9.1 %") {
			t.Errorf("%v, %+v", c.RejectionRate, c.Unhealthy)
		}
		sleep(30 * time.Second)
		reject(2)
		if c := a.Snapshot(); c.RejectionRate != 4.0/25 {
			t.Errorf("%v", c.RejectionRate)
		}
		sleep(35 * time.Second)
		if c := a.Snapshot(); c.RejectionRate != 2.0/3 {
			t.Errorf("what is older than a minute still counts: %v", c.RejectionRate)
		}
		sleep(40 * time.Second)
		if c := a.Snapshot(); c.RejectionRate != 0 || c.Unhealthy != "" || c.Execution.Count != 0 {
			t.Errorf("%v, %+v", c.RejectionRate, c.Execution)
		}
		rest(t, s, 0)
	})
}

func TestACallerThatGoesAwayWasNotRejected(t *testing.T) {
	_, a := single(t, CompartmentConfig{Guaranteed: 1, Criticality: decision.Critical})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Do(ctx, a, nothing)
	wantRejected(t, err, decision.Canceled)
	if c := a.Snapshot(); c.RejectionRate != 0 || c.Unhealthy != "" || c.Left["canceled"] != 1 {
		t.Errorf("%+v", c)
	}
}

func TestHealthOfOthersIsNotJudged(t *testing.T) {
	_, a := single(t, CompartmentConfig{Guaranteed: 1, Criticality: decision.High})
	_, p, _ := a.Acquire(t.Context())
	_, _ = Do(t.Context(), a, nothing)
	p.Release(nil)
	if c := a.Snapshot(); c.RejectionRate != 0.5 || c.Unhealthy != "" {
		t.Errorf("%+v", c)
	}
}

func TestExecutionTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := single(t, CompartmentConfig{Guaranteed: 1})
		for i := range 100 {
			_, _ = Do(t.Context(), a, func(context.Context) (int, error) {
				sleepFor(time.Duration(i+1) * time.Millisecond)
				return 0,
					nil
			})
		}
		e := a.Snapshot().Execution
		near := func(got, want time.Duration) bool { return got > want*7/8 && got < want*9/8 }
		if e.Count != 100 || e.Mean != 50500*time.Microsecond || !near(e.P50, 50*time.Millisecond) ||
			!near(e.P90, 90*time.Millisecond) || !near(e.P99, 99*time.Millisecond) {
			t.Errorf("%+v", e)
		}
	})
}

// TestExecutionTimesOfMany runs so many that most are not timed: those that are stand for them.
func TestExecutionTimesOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := single(t, CompartmentConfig{Guaranteed: 1})
		const n = 40_000
		for range n {
			_, _ = Do(t.Context(), a, nothing)
		}
		if e := a.Snapshot().Execution; e.Count < n*8/10 || e.Count > n*12/10 {
			t.Errorf("%+v", e)
		}
		if !a.pool.window.busy {
			t.Error("each one is timed")
		}
	})
}

func TestRangesMeet(t *testing.T) {
	for r := range ranges {
		if got := rangeOf(rangeBegin(r)); got != r {
			t.Errorf("range %d begins at %s, which is in %d", r, rangeBegin(r), got)
		}
		if r > 0 && rangeOf(rangeBegin(r)-1) != r-1 {
			t.Errorf("range %d does not end where %d begins", r-1, r)
		}
	}
	if rangeOf(1<<62) != ranges-1 {
		t.Error("the last range has no end")
	}
}

func TestSnapshotIsJSON(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1}})
	_, _ = Do(t.Context(), a.Tenant("x"), nothing)
	s.Apply(bound(1, 1))
	text, err := json.Marshal(s.Snapshot())
	if err != nil || !containsAll(string(text), `"compartments":[{"name":"a"`, `"succeeded":1`, `"tenants":{"keys":1`,
		`"effective_total":1`) {
		t.Errorf("%s, %v", text, err)
	}
}
