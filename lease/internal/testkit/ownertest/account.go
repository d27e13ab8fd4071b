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

	counts   map[string]int // of records, kinds of rounds, steps at which members were stopped, and all below
	wrong    int            // violations, which are among the counts
	findings []string
}

// What is counted: what is right under faults, and what is not.
const (
	redone      = "redone under a greater token"
	refused     = "refused by the fence"
	deadLetters = "dead letters"
	lost        = "lost"
	doubled     = "doubled"
	disordered  = "disordered"
	stuck       = "stuck"
	other       = "other violations"
)

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

func newAccount() *account {
	return &account{lanes: map[string]*lane{}, records: map[string]*entry{}, counts: map[string]int{}}
}

func (a *account) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts[what]++
}

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
	a.counts["records"]++
}

// foundLocked records a violation.
func (a *account) foundLocked(what, format string, args ...any) {
	a.counts[what]++
	a.wrong++
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
		a.foundLocked(other, "%s works on %q, which nobody wrote", holder, payload)
		return sayPermanent
	}
	l := e.lane
	l.attempts++
	switch {
	case token < l.token:
		a.counts[refused]++
		return sayFenced
	case token == l.token && (l.at != e || l.holder != holder):
		a.foundLocked(other, "%s: token %d is that of %s for %s, and of %s for %s", l.name, token, l.holder,
			l.at.payload, holder, payload)
	}
	l.token, l.holder, l.at = token, holder, e
	switch {
	case e.done && (e.settled || token == e.token):
		a.foundLocked(doubled, "%s: %s is carried out by %s under token %d, after %d (settled: %v)", l.name, payload,
			holder, token, e.token, e.settled)
		return sayDone
	case e.done: // by a member that could not complete the record
		a.counts[redone]++
		e.token = token
		return sayDone
	case e.place != l.next:
		a.foundLocked(disordered, "%s: %s is number %d and comes when number %d should", l.name, payload, e.place, l.next)
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
	a.counts[deadLetters]++
	e := a.records[payload]
	switch {
	case e == nil || e.say != sayPermanent:
		a.foundLocked(lost, "%s was given up by %s: %s", payload, holder, why)
	case e.done:
	case e.place != e.lane.next:
		a.foundLocked(disordered, "%s: %s is given up as number %d when number %d should come", e.lane.name, payload,
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
			a.foundLocked(lost, "%s: %s is committed and was never carried out", e.lane.name, payload)
		}
	}
}

// open returns the number of records that are not done, and the number of violations.
func (a *account) open() (undone, violations int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.undone, a.wrong
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
