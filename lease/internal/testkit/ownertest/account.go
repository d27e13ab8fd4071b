// SPDX-License-Identifier: Apache-2.0

// The account of a torture: the written records, the handlers' attempts, and the violations among them.

package ownertest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// Instructions to a handler for its attempt.
const (
	sayDone      = "done"      // the effect is recorded: return nil
	sayFenced    = "fenced"    // a greater token was seen before: return an error
	sayFail      = "fail"      // return an error
	sayPanic     = "panic"     // panic
	sayExit      = "exit"      // runtime.Goexit
	sayHang      = "hang"      // return when the context is done
	saySlow      = "slow"      // ignore the context for a while, then ask again
	sayDie       = "die"       // kill the member
	sayPermanent = "permanent" // return an error that is ErrPermanent
)

// account is the log's record of writes and the downstream store: it compares tokens and applies each effect once.
type account struct {
	mu      sync.Mutex // guards all below
	lanes   map[string]*lane
	records map[string]*entry // by payload
	undone  int
	slow    time.Time // until then a handler takes its time, as it was told to

	redone, refused, deadLetters                int
	lost, doubled, disordered, stuck, violation int
	findings                                    []string
}

// lane is the history of one domain of a partition.
type lane struct {
	name     string
	length   int
	next     int // place of the first entry that is not done
	attempts int
	token    lease.Token
	holder   string // holder of token
	at       *entry // record of token
}

// entry is a record.
type entry struct {
	payload string
	lane    *lane
	place   int
	say     string // instruction to the next attempts
	times   int
	done    bool
	token   lease.Token // of the effect; the last one if there were several
	settled bool        // done and committed when the group had come to rest
}

func newAccount() *account { return &account{lanes: map[string]*lane{}, records: map[string]*entry{}} }

// writes registers a record before it is appended to the log. Its first attempts get the instruction say.
func (a *account) writes(partition, domain, payload, say string, times int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := partition + "/" + domain
	l := a.lanes[name]
	if l == nil {
		l = &lane{name: name}
		a.lanes[name] = l
	}
	a.records[payload] = &entry{payload: payload, lane: l, place: l.length, say: say, times: times}
	l.length++
	a.undone++
}

// foundLocked records a violation under one of the sums.
func (a *account) foundLocked(sum *int, format string, args ...any) {
	*sum++
	if len(a.findings) < 20 {
		a.findings = append(a.findings, fmt.Sprintf(format, args...))
	}
}

// attempt is a handler's first call. It applies the effect, or returns another instruction.
func (a *account) attempt(holder, payload string, token lease.Token) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.records[payload]
	if e == nil {
		a.foundLocked(&a.violation, "%s works on %q, which nobody wrote", holder, payload)
		return sayPermanent
	}
	l := e.lane
	l.attempts++
	switch {
	case token < l.token:
		a.refused++
		return sayFenced
	case token == l.token && (l.at != e || l.holder != holder):
		a.foundLocked(&a.violation, "%s: token %d is that of %s for %s, and of %s for %s", l.name, token, l.holder,
			l.at.payload, holder, payload)
	}
	l.token, l.holder, l.at = token, holder, e
	switch {
	case e.done && (e.settled || token == e.token):
		a.foundLocked(&a.doubled, "%s: %s is carried out by %s under token %d, after %d (settled: %v)", l.name, payload,
			holder, token, e.token, e.settled)
		return sayDone
	case e.done: // by a member that could not complete the record
		a.redone++
		e.token = token
		return sayDone
	case e.place != l.next:
		a.foundLocked(&a.disordered, "%s: %s is number %d and comes when number %d should", l.name, payload, e.place, l.next)
	case e.say == sayPermanent:
		return sayPermanent
	case e.times > 0:
		if e.times--; e.say == saySlow || e.say == sayHang {
			a.slow = time.Now().Add(slowest)
		}
		return e.say
	}
	a.finishLocked(e, token)
	return sayDone
}

// finishLocked applies the effect.
func (a *account) finishLocked(e *entry, token lease.Token) {
	e.done, e.token = true, token
	e.lane.next = e.place + 1
	a.undone--
}

// letter registers a record that was given up.
func (a *account) letter(holder, payload, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deadLetters++
	e := a.records[payload]
	switch {
	case e == nil || e.say != sayPermanent:
		a.foundLocked(&a.lost, "%s was given up by %s: %s", payload, holder, why)
	case e.done:
	case e.place != e.lane.next:
		a.foundLocked(&a.disordered, "%s: %s is given up as number %d when number %d should come", e.lane.name, payload,
			e.place, e.lane.next)
	}
	if e != nil && !e.done {
		a.finishLocked(e, e.token)
	}
}

// rest ends a round: a record that is not done was lost, and a record that is done must not be handled again.
func (a *account) rest() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for payload, e := range a.records {
		if e.done {
			e.settled = true
		} else {
			a.foundLocked(&a.lost, "%s: %s is committed and was never carried out", e.lane.name, payload)
		}
	}
}

// open returns the number of records that are not done, and the number of violations.
func (a *account) open() (undone, violations int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.undone, a.lost + a.doubled + a.disordered + a.stuck + a.violation
}

// add adds b's sums; b has ended.
func (a *account) add(b *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.undone += len(b.records)
	a.redone += b.redone
	a.refused += b.refused
	a.deadLetters += b.deadLetters
	a.lost += b.lost
	a.doubled += b.doubled
	a.disordered += b.disordered
	a.stuck += b.stuck
	a.violation += b.violation
}

// report returns the violations, and some of the domains that are not done.
func (a *account) report() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	lines := slices.Clone(a.findings)
	for _, l := range a.lanes {
		if l.next < l.length && len(lines) < len(a.findings)+5 {
			lines = append(lines, fmt.Sprintf("%s waits for number %d of %d (token %d, %s)", l.name, l.next, l.length,
				l.token, l.holder))
		}
	}
	return strings.Join(lines, "\n")
}
