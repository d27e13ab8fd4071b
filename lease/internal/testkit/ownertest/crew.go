// SPDX-License-Identifier: Apache-2.0

// One member under torture: a Consumer that asks the account before each effect, in this process or in one of its own.

package ownertest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// Call is a member's message to the account. Each gets an answer.
type Call struct {
	What    string // attempt, letter, holds, ends, at, hears; of a process also stays, over
	Token   uint64
	Payload string // or the partition
	Text    string
}

const (
	attemptTimeout = 150 * time.Millisecond
	slowest        = 2 * attemptTimeout // the longest run of a handler
)

// Name is what a record is known by: its payload up to the first space.
func Name(payload []byte) string {
	name, _, _ := strings.Cut(string(payload), " ")
	return name
}

// consume runs a member until ctx is done. die kills the member, and returns if that is not possible any more.
func consume(ctx context.Context, o dispatch.Ownership, ask func(Call) string, die func()) error {
	handle := func(ctx context.Context, job dispatch.Job) error {
		time.Sleep(time.Millisecond) // so that something is in progress when the fault happens
		for {
			switch ask(Call{What: "attempt", Token: uint64(job.Lease.Token), Payload: Name(job.Record.Payload)}) {
			case sayDone:
				return nil
			case sayFenced:
				return errFenced
			case sayPanic:
				panic("told to")
			case sayExit:
				runtime.Goexit()
			case sayHang:
				<-ctx.Done()
				return ctx.Err()
			case saySlow:
				time.Sleep(slowest)
			case sayDie:
				die()
				return errors.New("ownertest: dead")
			case sayPermanent:
				return dispatch.ErrPermanent
			default:
				return errors.New("ownertest: told to fail")
			}
		}
	}
	var unexplained atomic.Bool
	c, err := dispatch.NewConsumer(telling{o, ask}, dispatch.Config{
		Observer: watching(func(e dispatch.Event) {
			if e.Reason == "unknown" {
				unexplained.Store(true)
			}
		}),
		Handler: handle, MaxInFlight: 8, MaxBuffered: 64, Backoff: 5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
		AttemptTimeout: attemptTimeout, CommitEvery: 20 * time.Millisecond, Grace: 50 * time.Millisecond,
		DrainTimeout: time.Second,
		DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
			text := ""
			if letter.Err != nil {
				text = letter.Err.Error()
			}
			ask(Call{What: "letter", Payload: Name(letter.Record.Payload), Text: text})
			return nil
		},
	})
	if err != nil {
		return err
	}
	err = c.Run(ctx)
	switch {
	case unexplained.Load():
		return errors.New("ownertest: D12: a partition stood still without a reason")
	case errors.Is(err, dispatch.ErrDrain): // other members continue the rest
		return nil
	}
	return err
}

// telling reports the held partitions.
type telling struct {
	dispatch.Ownership
	ask func(Call) string
}

func (o telling) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	return o.Ownership.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
		ends := sync.OnceFunc(func() { o.ask(Call{What: "ends", Payload: p.Name}) })
		o.ask(Call{What: "holds", Payload: p.Name})
		defer ends()
		s := &stepping{at: func(step string) { o.ask(Call{What: "at", Text: step}) }}
		s.has(p.Source, p.Ledger)
		// A member that stands still hears of nothing: work's context ends when it goes on, or a little later.
		heard, hear := context.WithCancelCause(context.WithoutCancel(ctx))
		defer hear(nil)
		defer context.AfterFunc(ctx, func() {
			o.ask(Call{What: "hears"})
			s.leaves.Store(true)
			ends()
			hear(context.Cause(ctx))
		})()
		s.at("taking, before work")
		if p.Open == nil {
			work(heard, dispatch.Partition{Name: p.Name, Source: s, Ledger: s})
			return
		}
		open := func(ctx context.Context) (dispatch.Source, lease.Ledger, error) {
			source, ledger, err := p.Open(ctx)
			if err != nil {
				return nil, nil, err
			}
			s.has(source, ledger)
			return s, s, nil
		}
		work(heard, dispatch.Partition{Name: p.Name, Open: open})
	})
}

var errFenced = errors.New("ownertest: a greater token was there before")

// hand is a member as the torture sees it. The torture's mu guards every field that changes.
type hand struct {
	name              string
	cut, mend         func() // silences it, resumes it
	line              *Line  // nil: it has none
	leave             func() // asks it to end
	kill              func() // ends it without notice
	ended             chan struct{}
	err               error // after its end
	silent, gone, die bool  // cut off; asked to end; dead or dying
	holds             map[string]int
	still             chan struct{} // closed when it goes on from the step where it was stopped; nil: it was not
}

// goOnLocked lets it go on from where it was stopped. It needs the lock of the crew.
func (h *hand) goOnLocked() {
	if h.still != nil {
		close(h.still)
		h.still = nil
	}
}

// answer is the account's reply to a member.
func (w *torture) answer(h *hand, c Call) string {
	switch c.What {
	case "attempt":
		return w.attempt(h.name, c.Payload, lease.Token(c.Token))
	case "letter":
		w.letter(h.name, c.Payload, c.Text)
	case "holds", "ends":
		w.crew.Lock()
		defer w.crew.Unlock()
		if h.holds[c.Payload]++; c.What == "ends" {
			h.holds[c.Payload] -= 2
		}
	case "at":
		w.at(h, c.Text)
	case "hears":
		w.hears(h)
	}
	return ""
}

// member starts a member in this process.
func (w *torture) member() *hand {
	m := w.group.Join()
	ctx, cancel := context.WithCancel(context.Background())
	h := &hand{cut: m.Cut, mend: m.Mend, line: m.Line, leave: cancel, ended: make(chan struct{}), holds: map[string]int{}}
	h.kill = func() { m.Cut(); cancel() }
	if h.line != nil {
		w.lined = true
		h.line.Late(w.late)
		h.line.Slow(w.slow)
	}
	w.enlist(h, "member")
	go func() {
		defer close(h.ended)
		if m.Close != nil {
			defer m.Close()
		}
		h.err = consume(ctx, m.Ownership, func(c Call) string { return w.answer(h, c) }, func() { w.killed(h); h.kill() })
	}()
	return h
}
