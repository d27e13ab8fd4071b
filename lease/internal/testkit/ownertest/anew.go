// SPDX-License-Identifier: Apache-2.0

// A log that is made anew under its name, put back, or replaced by a mirror.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Remade is a group with one partition, whose log can be made anew.
type Remade struct {
	Join   func() dispatch.Ownership // another member
	Append func(domain string, payload []byte)
	// Remake replaces the log by an empty one under the same name. Of the group's position and ledger all stays that the engine
	// leaves in place.
	Remake func()
	// Mirror replaces the log by another one with the same records at the same offsets. Nil: Remake and Append do.
	Mirror func()
	// Adopt says that the log that is there now is the one that the group knows. AtRest: only while no member runs.
	Adopt  func(ctx context.Context) error
	AtRest bool
	// Forgets: the position goes with the log, and the ledger with the position. A running member goes on in what is there now.
	Forgets bool
	// Unnamed: the source has an end, and nothing tells its log from another one that is as long.
	Unnamed bool
}

const oldRecords, newRecords = 40, 100

// MadeAnew checks that no record of another log is passed over in silence, or taken for done (D13): it is handled, or the
// partition says that it is rewound, at a member that was running and at one that starts when the log has grown beyond the old
// position. A mirror goes on where the log was, once it is adopted. Open opens another group each time; its ledgers must allow a
// hundred retries. Each part runs inside within, which may be synctest.Test.
func MadeAnew(t *testing.T, within func(t *testing.T, part func(t *testing.T)), open func(t testing.TB) Remade) {
	t.Helper()
	if within == nil {
		within = inRealTime
	}
	for name, part := range map[string]func(t *testing.T, r Remade){
		"Running": func(t *testing.T, r Remade) {
			m := remadeMember(t, r)
			m.works(t, r)
			r.Remake()
			r.fill("new", oldRecords/2)
			m.tells(t, oldRecords/2)
			if r.Forgets {
				m.until(t, "what the new log has is handled", func() bool { return m.done("new") == oldRecords/2 })
			} else if !r.Unnamed {
				r.fill("more", newRecords) // beyond the old position
				m.stays(t)
			}
		},
		"Refilled": func(t *testing.T, r Remade) {
			m := remadeMember(t, r)
			m.works(t, r)
			m.stop(t)
			r.Remake()
			n := newRecords
			if r.Unnamed {
				n = oldRecords / 2
			}
			r.fill("new", n)
			m = remadeMember(t, r)
			m.tells(t, n)
			m.stays(t)
		},
		"Mirrored":        func(t *testing.T, r Remade) { r.mirrored(t, false) },
		"MirroredRunning": func(t *testing.T, r Remade) { r.mirrored(t, true) },
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T) { part(t, open(t)) })
		})
	}
}

// mirrored: a member goes on in a mirror that was adopted.
func (r Remade) mirrored(t *testing.T, running bool) {
	t.Helper()
	if r.Unnamed || r.Forgets {
		return // a mirror is the same log, or nothing knows what is done
	}
	m := remadeMember(t, r)
	m.works(t, r)
	if !running {
		m.stop(t)
	}
	if r.Mirror != nil {
		r.Mirror()
	} else {
		r.Remake()
		r.fill("old", oldRecords)
	}
	r.fill("new", newRecords)
	before := m
	if !running {
		m = remadeMember(t, r)
	}
	m.until(t, "the mirror is handled, or told from the log", func() bool { return m.rewound > 0 || m.done("new") == newRecords })
	if r.AtRest {
		m.stop(t)
	}
	if err := r.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.AtRest {
		m = remadeMember(t, r)
	}
	m.until(t, "the new records are done", func() bool { return m.done("new") == newRecords })
	if n := m.done("old"); m != before && n > 0 || m.twice > 0 {
		t.Errorf("D13: %d and %d records are done again behind a mirror that was adopted", n, m.twice)
	}
}

func (r Remade) fill(what string, n int) {
	for i := range n {
		r.Append(fmt.Sprint("k", i%5), fmt.Append(nil, what, i))
	}
}

// works has the member do the log.
func (m *remade) works(t *testing.T, r Remade) {
	t.Helper()
	r.fill("old", oldRecords)
	m.until(t, "the log is done", func() bool { return m.done("old") == oldRecords && m.committed() })
}

// remade is a running member, and what it was told.
type remade struct {
	consumer *dispatch.Consumer
	cancel   context.CancelFunc
	result   chan error

	mu      sync.Mutex // guards all below
	handled map[string]bool
	twice   int // records
	rewound int // events that say so
	skipped int
	last    string // of the events with an error
}

func remadeMember(t *testing.T, r Remade) *remade {
	t.Helper()
	m := &remade{result: make(chan error, 1), handled: map[string]bool{}}
	var err error
	m.consumer, err = dispatch.NewConsumer(r.Join(), dispatch.Config{
		DeadLetter: dispatch.Discard, CommitEvery: 20 * time.Millisecond, Backoff: 5 * time.Millisecond,
		AttemptTimeout: attemptTimeout,
		Handler: func(_ context.Context, job dispatch.Job) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.handled[string(job.Record.Payload)] {
				m.twice++
			}
			m.handled[string(job.Record.Payload)] = true
			return nil
		},
		Observer: watching(func(e dispatch.Event) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if e.Err != nil {
				m.last = fmt.Sprint(e.Kind, ": ", e.Err)
			}
			switch {
			case e.Kind == dispatch.Skipped:
				m.skipped++
			case e.Kind == dispatch.Stalled && e.Reason == "rewound":
				m.rewound++
				if !errors.Is(e.Err, dispatch.ErrRewound) {
					t.Errorf("D13: rewound because of %v", e.Err)
				}
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() { m.result <- m.consumer.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		m.result <- <-m.result // it has ended
	})
	return m
}

// stop ends the member. What it could not commit it says.
func (m *remade) stop(t *testing.T) {
	t.Helper()
	m.cancel()
	err := within(t, "the member ends", m.result)
	m.result <- err
	if err != nil && !errors.Is(err, dispatch.ErrRewound) {
		t.Error(err)
	}
}

// done returns how many records of a kind are handled. The lock is until's.
func (m *remade) done(what string) (n int) {
	for payload := range m.handled {
		if strings.HasPrefix(payload, what) {
			n++
		}
	}
	return n
}

// committed reports whether the position is where the records end.
func (m *remade) committed() bool {
	all := m.consumer.Stats()
	return len(all) == 1 && all[0].Lag == 0 && all[0].Committed == all[0].Floor
}

// tells: the n new records are handled, or the partition is rewound.
func (m *remade) tells(t *testing.T, n int) {
	t.Helper()
	m.until(t, "the new records are handled, or told of", func() bool { return m.done("new") == n || m.rewound > 0 })
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rewound > 0 && (m.done("new") > 0 || m.skipped > 0) {
		t.Errorf("D13: of another log %d records are handled and %d taken for done", m.done("new"), m.skipped)
	}
}

// stays: if the partition is rewound it stays so, and works on nothing.
func (m *remade) stays(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	before := m.rewound
	m.mu.Unlock()
	if before == 0 {
		return
	}
	m.until(t, "the partition goes on saying that it is rewound", func() bool { return m.rewound > before+1 })
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.done("new") + m.done("more"); n > 0 || m.skipped > 0 {
		t.Errorf("D13: of another log %d records are handled and %d taken for done", n, m.skipped)
	}
	if all := m.consumer.Stats(); len(all) == 1 && (all[0].Stalled != "rewound" || all[0].Lag != -1) {
		t.Errorf("D13: stalled %q, lag %d; want rewound, -1", all[0].Stalled, all[0].Lag)
	}
}

// until waits for what must come; so looks under the lock.
func (m *remade) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	if !poll(func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return so()
	}) {
		m.mu.Lock()
		defer m.mu.Unlock()
		t.Fatalf("D13: not within %v: %s; handled %d old, %d new, %d more; rewound %d times, skipped %d; last error %q; %+v", patience,
			what, m.done("old"), m.done("new"), m.done("more"), m.rewound, m.skipped, m.last, m.consumer.Stats())
	}
}
