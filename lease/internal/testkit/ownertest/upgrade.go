package ownertest

// This file upgrades the program during work, and downgrades it again: members of two versions in one group.

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// upgrade: members of an older version work first, a newer one joins, the old one leaves; then back again. They share the partitions
// like one version. Some records fail in the version that meets them first, until the other version has them: each version must be
// able to take what the other releases. Every record has its effect once, in the order of its domain.
func upgrade(t testing.TB, open Open) {
	a := newAudit(t, open, 4)
	if a.group.JoinOld == nil {
		t.Fatal("the group has no members of another version: Group.JoinOld")
	}
	var mu sync.Mutex // guards all below
	met := map[string]string{}
	over := false // no more records are put off
	enter := func(version string, join func() Member) *consumer {
		return a.enter(join(), func(job dispatch.Job) error {
			payload := string(job.Record.Payload)
			if n, err := strconv.Atoi(payload); err != nil || n%10 != 3 {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if met[payload] == "" {
				met[payload] = version
			}
			if met[payload] == version && !over {
				return dispatch.Later(10 * time.Millisecond)
			}
			return nil
		})
	}
	// left returns the number of records of a version's first encounters that are not done.
	left := func(version string) (n int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		for payload, v := range met {
			if v == version && !a.records[payload].done {
				n++
			}
		}
		return n
	}
	shared := func(x, y *consumer) func() bool {
		return func() bool {
			all := append(x.names(), y.names()...)
			slices.Sort(all)
			return len(x.names()) == 2 && slices.Equal(all, slices.Sorted(slices.Values(a.group.Partitions)))
		}
	}
	a.append(60, 8)
	old := enter("old", a.group.JoinOld)
	a.eventually("an old member puts something off", func() bool { return left("old") > 3 })
	young := enter("new", a.group.Join)
	a.eventually("an old and a new member share the partitions", shared(old, young))
	old.cancel()
	a.ends(old)
	a.eventually("a new member does what the old one has put off", func() bool { return left("old") == 0 })

	a.append(60, 8)
	a.eventually("a new member puts something off", func() bool { return left("new") > 3 })
	old = enter("old", a.group.JoinOld)
	a.eventually("a new and an old member share the partitions", shared(young, old))
	young.cancel()
	a.ends(young)
	a.eventually("an old member does what the new one has put off", func() bool { return left("new") == 0 })
	mu.Lock()
	over = true
	mu.Unlock()
	a.check()
	old.cancel() // while it can still commit its progress
	a.ends(old)
}
