// SPDX-License-Identifier: Apache-2.0

// A connection that breaks permanently at each write of each call, like a dying process; then another process looks.

package lettertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
)

// mostWrites is more than any call needs.
const mostWrites = 60

// broken: whenever a call breaks off, nothing is lost, and repeating the call completes it.
func broken(t testing.TB, desk Desk) {
	clean := desk.Open(t, direct)
	calls := []string{"Put", "Park", "Replay", "Discard"}
	offset := int64(0)
	breaks := 0
	for _, name := range calls {
		for _, after := range []bool{false, true} {
			for n := 1; ; n++ {
				if n > mostWrites {
					t.Fatalf("%s does not come to its end in %d writes", name, n)
				}
				offset++
				l := letter(desk.Partition, name, offset)
				if name != "Put" {
					put(t, clean, l)
				}
				before := len(desk.Source(t))
				line := ownertest.NewLine(t)
				ctx, cancel := context.WithCancel(t.Context())
				s := desk.Open(t, line.DialContext)
				line.Break(n, after, func() { time.AfterFunc(50*time.Millisecond, cancel) })
				_, err := call(ctx, name, s, l)
				cancel()
				if err != nil {
					breaks++
				}
				look(t, desk, clean, name, l, err, before)
				_, again := call(t.Context(), name, clean, l)
				if again != nil && !(errors.Is(again, deadletter.ErrNotDead) && (name == "Replay" || name == "Discard")) {
					t.Fatalf("%s made again: %v", name, again)
				}
				look(t, desk, clean, name, l, nil, before)
				if err == nil {
					break // the call needs fewer writes
				}
			}
		}
	}
	if breaks < 2*len(calls) {
		t.Errorf("only %d calls were broken off", breaks)
	}
}

// look checks the letters as another process finds them after a call that ended with err.
func look(t testing.TB, desk Desk, clean deadletter.Store, name string, l deadletter.Letter, err error, before int) {
	t.Helper()
	got, missing := clean.Get(t.Context(), l.ID())
	appended := len(desk.Source(t)) - before
	var not *deadletter.NotDeadError
	errors.As(missing, &not)
	want := l
	if got.Parked {
		want.Parked, want.Note = true, fmt.Sprint("later ", l.Attempts)
	}
	there, fate := missing == nil && same(got, want), deadletter.Fate("")
	if not != nil {
		fate = not.Fate
	}
	ok := false
	switch name {
	case "Put":
		ok = (there || err != nil && fate == deadletter.Unknown) && appended == 0
	case "Park":
		ok = there && (got.Parked || err != nil) && appended == 0
	case "Discard":
		ok = (fate == deadletter.Discarded || err != nil && there) && appended == 0
	case "Replay":
		ok = fate == deadletter.Replayed && appended >= 1 || err != nil && there
		ok = ok && (!desk.Once || appended <= 1)
	}
	if !ok {
		t.Errorf("%s of %s ended with %v: then the letter is %+v, %v, and the source has %d records more", name, l.ID(),
			err, got, missing, appended)
	}
}
