// SPDX-License-Identifier: Apache-2.0

// A log that is made anew under its name, put back, or replaced by a mirror.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"testing"

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
}

const oldRecords, newRecords = 40, 100

// MadeAnew checks that no record of another log is passed over in silence, or taken for done (D13): it is handled, or the
// partition says that it is rewound, at a member that was running, at one that has taken over and read nothing, and at one that
// starts when the log has grown beyond the old position. A mirror goes on where the log was, once it is adopted. Open opens another
// group each time; its ledgers must allow a hundred retries. Each part runs inside within, which may be synctest.Test.
func MadeAnew(t *testing.T, within func(t *testing.T, part func(t *testing.T)), open func(t testing.TB) Remade) {
	t.Helper()
	if within == nil {
		within = inRealTime
	}
	for name, part := range map[string]func(t *testing.T, r Remade){
		"Running": func(t *testing.T, r Remade) {
			m := remadeMember(t, r)
			m.works(r)
			m.remadeBelow(r)
		},
		"TakenOver": func(t *testing.T, r Remade) { // the member has read nothing of the old log
			m := remadeMember(t, r)
			m.works(r)
			m.stop()
			m = remadeMember(t, r)
			m.until("the partition is taken", m.committed)
			m.remadeBelow(r)
		},
		"Refilled": func(t *testing.T, r Remade) {
			m := remadeMember(t, r)
			m.works(r)
			m.stop()
			r.Remake()
			r.fill("new", newRecords)
			m = remadeMember(t, r)
			m.tells(newRecords)
			m.stays()
		},
		"Mirrored":        func(t *testing.T, r Remade) { r.mirrored(t, false) },
		"MirroredRunning": func(t *testing.T, r Remade) { r.mirrored(t, true) },
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T) { part(t, open(t)) })
		})
	}
}

// remadeBelow makes the log anew below a running member: first it ends below the old position, then beyond.
func (m *remade) remadeBelow(r Remade) {
	m.t.Helper()
	r.Remake()
	r.fill("new", oldRecords/2)
	m.tells(oldRecords / 2)
	if r.Forgets {
		m.until("what the new log has is handled", func() bool { return m.done("new") == oldRecords/2 })
		return
	}
	r.fill("more", newRecords)
	m.stays()
}

// mirrored: a member goes on in a mirror that was adopted.
func (r Remade) mirrored(t *testing.T, running bool) {
	t.Helper()
	if r.Forgets {
		return // nothing knows what is done
	}
	m := remadeMember(t, r)
	m.works(r)
	if !running {
		m.stop()
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
	m.until("the mirror is handled, or told from the log", func() bool { return m.rewound() > 0 || m.done("new") == newRecords })
	if r.AtRest {
		m.stop()
	}
	if err := r.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.AtRest {
		m = remadeMember(t, r)
	}
	m.until("the new records are done", func() bool { return m.done("new") == newRecords })
	times, records := m.count("")
	if n := m.done("old"); m != before && n > 0 || times > records {
		t.Errorf("D13: %d and %d records are done again behind a mirror that was adopted", n, times-records)
	}
}

func (r Remade) fill(what string, n int) {
	for i := range n {
		r.Append(fmt.Sprint("k", i%5), fmt.Append(nil, what, i))
	}
}

// works has the member do the log.
func (m *remade) works(r Remade) {
	m.t.Helper()
	r.fill("old", oldRecords)
	m.until("the log is done", func() bool { return m.done("old") == oldRecords && m.committed() })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = m.events[string(dispatch.Skipped)]
}

// remade is a running member.
type remade struct {
	*told
	known int // records of the first log that were found done, where the member lost the partition and got it back
}

func remadeMember(t *testing.T, r Remade) *remade {
	t.Helper()
	return &remade{told: follow(t, r.Join(), nil, func(cfg *dispatch.Config) { cfg.AttemptTimeout = attemptTimeout })}
}

// stop ends the member. What it could not commit it says.
func (m *remade) stop() {
	m.t.Helper()
	m.cancel()
	if err := m.ends(); err != nil && !errors.Is(err, dispatch.ErrRewound) {
		m.t.Error(err)
	}
}

// done returns how many records of a kind are handled.
func (m *remade) done(what string) int {
	_, records := m.count(what)
	return records
}

func (m *remade) rewound() int { return m.events["stalled rewound"] }
func (m *remade) skipped() int { return m.events[string(dispatch.Skipped)] - m.known }

// committed reports whether the position is where the records end.
func (m *remade) committed() bool {
	all := m.Stats()
	return len(all) == 1 && all[0].Lag == 0 && all[0].Buffered == 0 && all[0].Committed == all[0].Floor
}

// tells: the n new records are handled, or the partition is rewound.
func (m *remade) tells(n int) {
	m.t.Helper()
	m.until("the new records are handled, or told of", func() bool { return m.done("new") == n || m.rewound() > 0 })
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rewound() > 0 && (m.done("new") > 0 || m.skipped() > 0) {
		m.t.Errorf("D13: of another log %d records are handled and %d taken for done", m.done("new"), m.skipped())
	}
}

// stays: if the partition is rewound it stays so, and works on nothing.
func (m *remade) stays() {
	m.t.Helper()
	m.mu.Lock()
	before := m.rewound()
	m.mu.Unlock()
	if before == 0 {
		return
	}
	m.until("the partition goes on saying that it is rewound", func() bool { return m.rewound() > before+1 })
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.done("new") + m.done("more"); n > 0 || m.skipped() > 0 {
		m.t.Errorf("D13: of another log %d records are handled and %d taken for done", n, m.skipped())
	}
	if all := m.Stats(); len(all) == 1 && (all[0].Stalled != "rewound" || all[0].Lag != -1) {
		m.t.Errorf("D13: stalled %q, lag %d; want rewound, -1", all[0].Stalled, all[0].Lag)
	}
}
