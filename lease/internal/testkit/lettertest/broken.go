// SPDX-License-Identifier: Apache-2.0

// A connection that breaks permanently at each write of each call, like a dying process; then another process looks.

package lettertest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/deadletter"
)

// mostWrites is more than any call needs.
const mostWrites = 60

var errBroken = errors.New("lettertest: the connection was broken on purpose")

// fragile is a network that breaks at a write: before the engine receives it, or before its reply arrives.
type fragile struct {
	mu     sync.Mutex
	left   int  // writes until it breaks; 0: it does not
	after  bool // the write still gets through
	lost   bool // it is broken
	waits  bool // the reply is outstanding
	broken func()
}

// arm breaks the network at the n-th write from now on.
func (f *fragile) arm(n int, after bool, broken func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.after, f.broken = n, after, broken
}

func (f *fragile) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	lost := f.lost || f.waits
	f.mu.Unlock()
	if lost {
		return nil, errBroken
	}
	c, err := direct(ctx, network, address)
	return &brittle{c, f}, err
}

// lose is called with the lock held.
func (f *fragile) lose() {
	if !f.lost {
		f.lost = true
		f.broken()
	}
}

// brittle is one connection of the network.
type brittle struct {
	net.Conn
	of *fragile
}

func (b *brittle) Write(p []byte) (int, error) {
	f := b.of
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost || f.waits {
		return 0, errBroken
	}
	if f.left > 0 {
		if f.left--; f.left == 0 {
			if !f.after {
				f.lose()
				_ = b.Close()
				return 0, errBroken
			}
			f.waits = true
			time.AfterFunc(100*time.Millisecond, func() { // some writes have no reply, or nobody who reads it
				f.mu.Lock()
				defer f.mu.Unlock()
				f.lose()
				_ = b.Close()
			})
		}
	}
	return b.Conn.Write(p)
}

func (b *brittle) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	f := b.of
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waits || f.lost {
		f.lose()
		_ = b.Close()
		return 0, errBroken
	}
	return n, err
}

// broken: whenever a call breaks off, nothing is lost, and repeating the call completes it.
func broken(t testing.TB, desk Desk) {
	clean := desk.Open(t, direct)
	calls := map[string]func(context.Context, deadletter.Store, deadletter.Letter) error{
		"Put": func(ctx context.Context, s deadletter.Store, l deadletter.Letter) error { return s.Put(ctx, l) },
		"Park": func(ctx context.Context, s deadletter.Store, l deadletter.Letter) error {
			return s.Park(ctx, l.ID(), "later")
		},
		"Replay": func(ctx context.Context, s deadletter.Store, l deadletter.Letter) error { return s.Replay(ctx, l.ID()) },
		"Discard": func(ctx context.Context, s deadletter.Store, l deadletter.Letter) error {
			return s.Discard(ctx, l.ID())
		},
	}
	offset := int64(0)
	breaks := 0
	for name, call := range calls {
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
				network := &fragile{}
				ctx, cancel := context.WithCancel(t.Context())
				s := desk.Open(t, network.dial)
				network.arm(n, after, func() { time.AfterFunc(50*time.Millisecond, cancel) })
				err := call(ctx, s, l)
				cancel()
				if err != nil {
					breaks++
				}
				look(t, desk, clean, name, l, err, before)
				again := call(t.Context(), clean, l)
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
		want.Parked, want.Note = true, "later"
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
