//go:build explore

// The worlds that are explored: a few threads each, which meet where it matters.

package limiter

import (
	"context"
	"testing"
)

// TestExploreQ1Q2Q6Q9 covers starting, waiting and ending: never above the target, nobody refused below it, nobody left
// waiting, nobody counted twice.
func TestExploreQ1Q2Q6Q9(t *testing.T) {
	cycle := (*driver).cycle
	try := func(d *driver) { d.release(d.try()) }
	hold := func(d *driver) { d.acquire() }
	exploreAll(t, map[string]world{
		"two without a queue":        {target: 1, switches: 6, threads: []script{try, try}},
		"three without a queue":      {target: 2, switches: 2, threads: []script{try, cycle, try}},
		"two, one place":             {target: 1, queue: 2, switches: 4, threads: []script{cycle, cycle}},
		"three, one place":           {target: 1, queue: 2, switches: 2, threads: []script{cycle, cycle, cycle}},
		"three, two places":          {target: 2, queue: 2, switches: 2, threads: []script{cycle, cycle, cycle}},
		"one waits, one may not":     {target: 1, queue: 1, switches: 2, threads: []script{cycle, try, cycle}},
		"twice each":                 {target: 1, queue: 2, switches: 3, threads: []script{func(d *driver) { d.cycle(); d.cycle() }, func(d *driver) { d.cycle(); d.release(d.try()) }}},
		"released by another thread": {target: 1, queue: 2, switches: 4, setup: hold, threads: []script{func(d *driver) { d.release(1) }, cycle}},
		"pooled seats":               {target: 1, queue: 2, noSeats: true, switches: 3, threads: []script{cycle, cycle}},
		"two copies of one permit": {target: 1, queue: 1, switches: 4, setup: hold, threads: []script{
			func(d *driver) { d.release(1) }, func(d *driver) { d.release(1); d.cycle() }}},
		"a stale copy after reuse": {target: 1, queue: 1, switches: 4, setup: hold, threads: []script{
			func(d *driver) { d.release(1); d.cycle() }, func(d *driver) { d.release(1) }}},
	})
}

// TestExploreQ1Q9_Apply covers decisions: a start is under one decision or the other, and a higher target wakes.
func TestExploreQ1Q9_Apply(t *testing.T) {
	cycle := (*driver).cycle
	try := func(d *driver) { d.release(d.try()) }
	hold := func(d *driver) { d.acquire() }
	exploreAll(t, map[string]world{
		"raised while two wait":    {target: 0, highest: 2, queue: 2, switches: 2, threads: []script{cycle, cycle, func(d *driver) { d.apply(2, 2) }}},
		"raised from nothing":      {target: 0, highest: 1, switches: 2, threads: []script{try, func(d *driver) { d.apply(2, 1) }, try}},
		"lowered while one starts": {target: 2, switches: 4, setup: hold, threads: []script{try, func(d *driver) { d.apply(2, 1); d.try() }}},
		"two decisions, two orders": {target: 1, highest: 2, queue: 2, switches: 2, threads: []script{
			func(d *driver) { d.apply(3, 1); d.cycle() }, func(d *driver) { d.apply(2, 2) }, cycle}},
		"lowered to nothing and raised": {target: 1, queue: 1, switches: 2, threads: []script{
			func(d *driver) { d.apply(2, 0); d.apply(3, 1) }, cycle, try}},
	})
}

// TestExploreQ12 covers a grant that meets the end of its context, and Close that meets either.
func TestExploreQ12(t *testing.T) {
	cycle := (*driver).cycle
	hold := func(d *driver) { d.acquire() }
	stop := func(d *driver) { d.step(nil); d.cancel() }
	lasting := func(d *driver) { d.release(d.ask(context.Background(), false)) }
	exploreAll(t, map[string]world{
		"canceled while granted":             {target: 1, queue: 1, switches: 3, setup: hold, threads: []script{cycle, stop, func(d *driver) { d.release(1) }}},
		"canceled, and another waits":        {target: 1, queue: 2, switches: 1, setup: hold, threads: []script{cycle, lasting, stop, func(d *driver) { d.release(1) }}},
		"canceled while others start":        {target: 1, queue: 1, switches: 2, threads: []script{cycle, stop, lasting}},
		"closed while granted":               {target: 1, queue: 1, switches: 3, setup: hold, threads: []script{cycle, (*driver).close, func(d *driver) { d.release(1) }}},
		"closed while one starts":            {target: 1, queue: 1, switches: 4, threads: []script{cycle, func(d *driver) { d.close(); d.try() }}},
		"evicted while granted and canceled": {target: 1, queue: 1, switches: 1, setup: hold, threads: []script{cycle, func(d *driver) { d.urgent(High) }, stop, func(d *driver) { d.release(1) }}},
	})
}

// TestExploreQ1Q9_Slots covers places that an owner grants: a refusal that meets a place coming free leaves nobody waiting.
func TestExploreQ1Q9_Slots(t *testing.T) {
	cycle := (*driver).cycle
	other := func(d *driver) {
		if d.borrow() {
			d.repay()
		}
	}
	stop := func(d *driver) { d.step(nil); d.cancel() }
	lasting := func(d *driver) { d.release(d.ask(context.Background(), false)) }
	exploreAll(t, map[string]world{
		"two, one place":                {target: 2, queue: 2, owned: true, free: 1, switches: 3, threads: []script{cycle, cycle}},
		"two, one place, target 1":      {target: 1, queue: 2, owned: true, free: 1, switches: 3, threads: []script{cycle, cycle}},
		"one, and another borrower":     {target: 1, queue: 1, owned: true, free: 1, switches: 5, threads: []script{cycle, other}},
		"two, and another borrower":     {target: 1, queue: 2, owned: true, free: 1, switches: 2, threads: []script{cycle, cycle, other}},
		"two, a borrower, room for all": {target: 3, queue: 2, owned: true, free: 1, switches: 3, threads: []script{cycle, cycle, other}},
		"two borrowers, target 2":       {target: 2, queue: 2, owned: true, free: 1, switches: 2, threads: []script{cycle, other, other}},
		"one cancels while Slots ask":   {target: 1, queue: 2, owned: true, free: 1, switches: 2, threads: []script{cycle, stop, lasting, other}},
		"a decision meets a borrower":   {target: 0, highest: 1, queue: 2, owned: true, free: 1, switches: 3, threads: []script{cycle, other, func(d *driver) { d.apply(2, 1) }}},
		"lowered while Slots are asked": {target: 1, queue: 1, owned: true, free: 1, switches: 3, threads: []script{cycle, other, func(d *driver) { d.apply(2, 0); d.apply(3, 1) }}},
		"closed while Slots are asked":  {target: 1, queue: 2, owned: true, free: 1, switches: 3, threads: []script{cycle, other, (*driver).close}},
		"one may not wait, one borrows": {target: 1, queue: 2, owned: true, free: 1, switches: 2, threads: []script{func(d *driver) { d.release(d.try()) }, cycle, other}},
	})
}

func exploreAll(t *testing.T, worlds map[string]world) {
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			if n := explore(t, w); n < 10 {
				t.Fatalf("only %d schedules: the threads did not meet", n)
			} else {
				t.Logf("%d schedules", n)
			}
		})
	}
}
