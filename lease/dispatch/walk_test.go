// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file walks the machine of a domain, alone: several processes have one each, over one ledger, and every call fails, is
// late, is carried out without a reply, or is carried out twice. Beside them a model keeps what the numbers of
// docs/guarantees/dispatch.md speak of: what began, what the ledger was told, and which process the partition belongs to.

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
)

var (
	errNoReply = errors.New("no reply")
	errHandler = errors.New("on purpose")
)

// walker is the world of one walk: a log of one key, a ledger, an assignment of the partition, and the model.
type walker struct {
	cfg       Config
	random    float64
	retries   int
	offsets   []int64 // of the log
	ledger    lease.Ledger
	processes []*process
	owner     *process
	fence     bool // the source accepts no commits of former owners
	committed int64
	odds      int // of so many calls, one fails, one gets no reply and one is carried out twice; 1: none is faulty
	wrong     string

	processed, failed, lettered map[int64]bool // the ledger knows, or DeadLetter has accepted it
	lost                        map[int64]bool // by the source
	begun                       map[int64]int
	repeated                    int // calls that were carried out twice
	holder                      map[lease.Token]*process
	granted                     map[lease.Token]time.Time
	calls                       map[call]int
	history                     []string
}

// process has a machine, and what its dispatcher would know.
type process struct {
	number              int // of its assignment
	m                   machine
	position            int64
	taking              bool // the partition
	draining, cut, dead bool

	out      step // the call that was made; nothing: none was
	carried  bool // it was carried out, and the answer is on its way
	repeated bool // it was carried out twice
	answer   answer
	admitted bool // an attempt may begin: the slot was given back since the last one

	// The model's.
	robbed    bool // its released lease was taken by another process
	troubled  bool // a call has failed or was repeated
	unsure    bool // the last call for a lease has, so that it cannot know whether a lease is its own
	cutOff    bool // its handler was ended by the drain
	counted   bool // the attempt was counted in advance, and has to begin
	died      map[int64]int
	notBefore map[int64]func(retry int) time.Time
}

func (w *walker) found(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// assign gives the partition to a new process.
func (w *walker) assign() {
	w.owner = &process{
		number: len(w.processes), taking: true, position: w.committed, admitted: true,
		died: map[int64]int{}, notBefore: map[int64]func(int) time.Time{},
	}
	w.processes = append(w.processes, w.owner)
}

func (w *walker) end(p *process) {
	p.dead = true
	if p == w.owner {
		w.assign()
	}
}

func (w *walker) living() []*process {
	return slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return p.dead })
}

func (w *walker) now(p *process) moment {
	return moment{&w.cfg, time.Now(), w.random, p.position, p.draining, p.cut}
}

// arrive reads one record, or finds that the source has lost it.
func (w *walker) arrive(p *process) {
	i, _ := slices.BinarySearch(w.offsets, p.position)
	if p.taking || p.draining || i == len(w.offsets) {
		return
	}
	if offset := w.offsets[i]; !w.lost[offset] {
		p.m.queue = append(p.m.queue, item{Record: Record{Domain: "k", Offset: offset}, since: time.Now()})
	}
	p.position = w.offsets[i] + 1
}

// advance makes p's next call, carries it out, or brings the answer. It reports false if p has nothing to do.
func (w *walker) advance(p *process, luck int) bool {
	switch {
	case p.out.call == nothing && p.taking:
		w.take(p)
	case p.out.call == nothing:
		now := w.now(p)
		before := p.m
		s := p.m.next(now)
		if again := p.m.next(now); !reflect.DeepEqual(s, again) || !reflect.DeepEqual(before, p.m) {
			w.found("next is %+v, then %+v", s, again)
		}
		if s.call == nothing {
			return false
		}
		w.called(p, s)
	case !p.carried:
		w.carry(p, luck)
	default:
		w.learn(p)
	}
	return true
}

// take is what a dispatcher does with its partition first: every held lease is reclaimed, and what waits is noted.
func (w *walker) take(p *process) {
	v, err := w.ledger.Inspect(context.Background(), "k")
	if err != nil {
		w.found("inspect: %v", err)
		return
	}
	switch l := v.Lease; {
	case p != w.owner:
		w.end(p)
	case p.m.state == releasing:
		w.called(p, p.m.next(w.now(p)))
	case l != nil && (p.m.state != leased || p.m.lease.Token != l.Token):
		p.m.current = current{state: claiming, lease: *l}
		w.called(p, step{call: reclaim, lease: *l})
	default:
		if p.taking = false; l != nil {
			p.position = min(p.position, l.Offset)
		} else if len(v.Backlog) > 0 {
			p.m.ledger = mark{true, v.Backlog[0]}
			p.position = min(p.position, v.Backlog[0])
		}
	}
}

// called holds a call against the model before it is carried out.
func (w *walker) called(p *process, s step) {
	p.out, p.carried = s, false
	w.calls[s.call]++
	if p.draining && (s.call == tryAcquire || s.call == acquireNext || s.call == reclaim || s.call == handle && !p.counted) {
		w.found("D4: %d in a drain", s.call)
	}
	if p.cutOff && (s.call == fail || s.call == giveUp) {
		w.found("D4: the drain ended the handler of %d, which counts as a failure", s.lease.Offset)
	}
	if s.call != handle {
		return
	}
	offset := s.lease.Offset
	for _, before := range w.offsets {
		if before < offset && !w.processed[before] && !w.failed[before] && !w.lost[before] {
			w.found("D1: %d begins before %d is done or given up", offset, before)
		}
	}
	if alone := len(w.living()) == 1; alone && (w.processed[offset] || w.failed[offset]) {
		w.found("D4: %d begins again", offset)
	}
	if s.record.Offset != offset {
		w.found("D1: record %d under a lease of %d", s.record.Offset, offset)
	}
	if (s.err != nil) != (w.lost[offset] && p.m.find(offset) < 0) {
		w.found("%d: %v", offset, s.err)
	}
	if !p.admitted {
		w.found("D10: two attempts under one admission")
	}
	if died, suspect := p.died[offset]; suspect && s.lease.RetryCount <= died {
		w.found("D6: %d may have killed its process, and begins with %d retries counted as before", offset, died)
	}
	if earliest := p.notBefore[offset]; earliest != nil && time.Now().Before(earliest(s.lease.RetryCount)) {
		w.found("D7: retry %d of %d at %v, before %v", s.lease.RetryCount, offset, time.Now(), earliest(s.lease.RetryCount))
	}
	if most := w.begun[offset] + w.pending(); s.lease.RetryCount > most {
		w.found("D6: %d begins with retry %d, of %d that may have been counted", offset, s.lease.RetryCount, most)
	}
	delete(p.died, offset)
	delete(p.notBefore, offset)
	p.admitted, p.counted = false, false
	w.begun[offset]++
}

// pending is how many attempts were counted in advance and have not begun.
func (w *walker) pending() int {
	return len(w.processes) - len(slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return p.counted }))
}

// carry has the call of p carried out, or not; once, or twice.
func (w *walker) carry(p *process, luck int) {
	p.carried, p.repeated = true, false
	fate, luck := luck%w.odds, luck/w.odds
	if w.odds == 1 {
		fate, luck = 3, 0
	}
	if fate == 0 && p.out.call != handle {
		p.answer = answer{err: errNoReply}
		return
	}
	p.answer = w.effect(p, p.out, luck)
	switch again := p.out.call != handle && p.out.call != fail; { // a Fail counts each time: no engine may repeat it
	case fate == 1 && p.out.call != handle:
		p.answer = answer{err: errNoReply}
	case fate == 2 && again:
		p.answer = w.effect(p, p.out, luck)
		p.repeated = true
		w.repeated++
	}
}

// effect carries a call out, and keeps in the model what it changed.
func (w *walker) effect(p *process, s step, luck int) (a answer) {
	offset := s.lease.Offset
	switch s.call {
	case confirm:
		if w.fence && p != w.owner {
			return answer{err: Lost("p", nil)}
		}
		return a
	case handle:
		a.began = time.Now()
		switch outcome := luck % 6; {
		case s.err != nil:
			a.err = s.err
		case p.cut:
			a.err, p.cutOff = context.Canceled, true
		case outcome == 1, outcome == 2:
			a.err = errHandler
		case outcome == 3:
			a.err = ErrPermanent
		case outcome == 4:
			a.err = Later(time.Second)
		}
		return a
	case deliver:
		if s.err = nil; luck%3 == 1 {
			return answer{err: errHandler}
		}
		w.lettered[s.record.Offset] = true
		return a
	}
	d := &Dispatcher{partition: Partition{Ledger: w.ledger}}
	if a = d.call(context.Background(), &domain{name: "k"}, s); a.err != nil {
		return a
	}
	switch s.call {
	case tryAcquire, acquireNext:
		if a.status == lease.Acquired {
			w.holder[a.lease.Token], w.granted[a.lease.Token] = p, time.Now()
		}
	case reclaim:
		from := w.holder[s.lease.Token]
		if w.fence && from.number > p.number {
			w.found("D8: process %d reclaims a lease of its successor %d", p.number, from.number)
		}
		if graced := w.granted[s.lease.Token].Add(w.cfg.Grace); !p.taking && from != p && !p.unsure &&
			(!s.lease.Released || p.robbed) && time.Now().Before(graced) {
			w.found("D8: process %d reclaims the lease of %d at %v, before %v", p.number, from.number, time.Now(), graced)
		}
		if from != p {
			delete(p.notBefore, a.lease.Offset)
			delete(p.died, a.lease.Offset)
		}
		switch n := a.lease.RetryCount; {
		case from == p || p.unsure:
		case !s.lease.Released:
			p.died[a.lease.Offset] = n
		case n > 0:
			earliest, pause := a.lease.AcquiredAt, time.Duration(0)
			for i := range n {
				pause = w.cfg.Backoff << i
				earliest = earliest.Add(pause)
			}
			if half := time.Now().Add(pause / 2); half.Before(earliest) {
				earliest = half
			}
			p.notBefore[a.lease.Offset] = func(int) time.Time { return earliest }
		}
		w.holder[a.lease.Token], w.granted[a.lease.Token] = p, time.Now()
	case succeed:
		w.processed[offset] = true
	case fail, giveUp:
		if a.status == lease.RetryScheduled {
			p.counted = p.m.state == leased
			break
		}
		w.failed[offset] = true
		// A run may be charged that did not begin: its process ended before, or could not know its own lease.
		if most, free := w.retries+1, w.pending()+len(w.processes)-1+w.repeated; s.call == fail && w.begun[offset]+free < most {
			w.found("D6: %d is given up after %d of %d runs, with %d for free", offset, w.begun[offset], most, free)
		}
	}
	return a
}

// learn brings the answer to the machine.
func (w *walker) learn(p *process) {
	s, a := p.out, p.answer
	p.out = step{}
	bad := p.repeated || errors.Is(a.err, errNoReply)
	if p.troubled = p.troubled || bad; errors.Is(a.err, ErrLost) {
		p.draining = true
	}
	if p.taking && s.call == reclaim && a.err != nil {
		p.m.current = current{} // the taking begins anew
		return
	}
	switch s.call {
	case reclaim:
		p.robbed = isFence(a.err) && p.m.state == leased
		p.unsure = bad || p.unsure && a.err != nil
	case tryAcquire, acquireNext:
		if busy := []lease.Status{lease.Busy, lease.Enqueued, lease.AlreadyAcquired}; a.err == nil && !slices.Contains(busy, a.status) {
			p.robbed, p.unsure = false, false
		}
		p.unsure = p.unsure || bad
	}
	postponed := (*later)(nil)
	switch seen := time.Now(); {
	case s.call != handle:
	case errors.As(a.err, &postponed):
		p.notBefore[s.lease.Offset] = func(int) time.Time { return seen.Add(postponed.wait) }
	case a.err != nil && !p.cut:
		p.notBefore[s.lease.Offset] = func(retry int) time.Time { return seen.Add(w.cfg.Backoff << retry / 4) }
	}
	e, on := p.m.learn(w.now(p), s, a)
	w.history = append(w.history, fmt.Sprintf("%v process %d: call %d of %d under %d: %d %v, token %d -> state %d, %s",
		time.Now().Format("04:05.000"), p.number, s.call, s.record.Offset, s.lease.Token, a.status, a.err, a.lease.Token,
		p.m.state, e.Kind))
	p.admitted = p.admitted || !on
}

// floor is what p would commit.
func (p *process) floor() int64 { return mark{true, p.position}.lower(p.m.low()).offset }

func (w *walker) commit(p *process) {
	floor := p.floor()
	switch {
	case p.taking:
	case w.fence && p != w.owner:
		p.draining = true
	case floor > w.committed:
		w.committed = floor
		if err := w.ledger.Compact(context.Background(), floor); err != nil {
			w.found("D2: compact: %v", err)
		}
	}
}

// drain goes one step further: nothing new, no more time for handlers, the leases are released.
func (w *walker) drain(p *process) {
	switch {
	case p.taking:
		w.end(p)
	case !p.draining:
		p.draining = true
	case !p.cut:
		p.cut = true
	case p.m.finishes():
		w.advance(p, 0)
	case p.m.holds():
		if _, suspect := p.died[p.m.lease.Offset]; suspect {
			w.found("D6: the drain acquits %d", p.m.lease.Offset)
		}
		_ = w.ledger.Release(context.Background(), "k", p.m.lease.Token) // another process may have it
		fallthrough
	default:
		v, err := w.ledger.Inspect(context.Background(), "k")
		if err != nil {
			w.found("inspect: %v", err)
			return
		}
		if l := v.Lease; l != nil && !l.Released && w.holder[l.Token] == p && p.out.call == nothing && !p.troubled {
			if _, suspect := p.died[l.Offset]; !suspect {
				w.found("D4: the drain leaves the lease of %d: %+v", l.Offset, p.m.current)
			}
		}
		w.end(p)
	}
}

// do takes one step of the walk, which n says.
func (w *walker) do(n int) {
	living := w.living()
	what, n := n%16, n/16
	p := living[n%len(living)]
	switch n /= len(living); what {
	default:
		if !w.advance(p, n) && n%2 == 0 {
			time.Sleep(p.m.next(w.now(p)).wait)
		}
	case 9, 10:
		w.arrive(p)
	case 11:
		time.Sleep([]time.Duration{time.Millisecond, 100 * time.Millisecond, 5 * time.Second, time.Minute}[n%4])
	case 12:
		w.commit(p)
	case 13:
		if n%3 == 0 {
			w.end(p)
		} else {
			w.drain(p)
		}
	case 14:
		if len(living) < 3 && n%4 == 0 {
			w.assign()
		}
	case 15:
		if offset := w.offsets[n%len(w.offsets)]; n%5 == 0 {
			w.lost[offset] = true
		}
	}
}

// check holds what the machines say of the floor against the model.
func (w *walker) check() {
	for _, p := range w.living() {
		for _, offset := range w.offsets {
			if offset < p.floor() && !p.taking && !w.done(offset) {
				w.found("D2: process %d has the floor %d, and %d is not done", p.number, p.floor(), offset)
			}
		}
	}
}

func (w *walker) done(offset int64) bool {
	return w.processed[offset] || w.failed[offset] && w.lettered[offset] || w.lost[offset]
}

// settle lets the owner go on alone, without faults: it does all that is left.
func (w *walker) settle() {
	w.odds = 1
	for _, p := range w.living() {
		if p != w.owner || p.draining {
			w.end(p)
		}
	}
	last := w.offsets[len(w.offsets)-1]
	for range 1000 {
		p := w.owner
		if w.advance(p, 0) {
			continue
		}
		s := p.m.next(w.now(p))
		if s.wait == 0 && p.position > last {
			break
		}
		w.arrive(p)
		time.Sleep(s.wait)
	}
	w.check()
	if floor := w.owner.floor(); floor <= last {
		w.found("D4: the floor stays at %d: %+v", floor, w.owner.m)
	}
}

// walk draws one walk and returns the first thing that was wrong.
func walk(t *testing.T, rt *rapid.T, calls map[call]int) *walker {
	w := &walker{
		cfg:    Config{Backoff: 100 * time.Millisecond, MaxBackoff: time.Hour, Grace: time.Minute},
		random: rapid.SampledFrom([]float64{0, 0.999}).Draw(rt, "random"), retries: rapid.IntRange(0, 3).Draw(rt, "retries"),
		fence: rapid.Bool().Draw(rt, "fence"), odds: rapid.SampledFrom([]int{6, 40, 500}).Draw(rt, "odds"),
		processed: map[int64]bool{}, failed: map[int64]bool{}, lettered: map[int64]bool{}, lost: map[int64]bool{},
		begun: map[int64]int{}, holder: map[lease.Token]*process{}, granted: map[lease.Token]time.Time{}, calls: calls,
	}
	for i := range rapid.IntRange(1, 4).Draw(rt, "records") {
		w.offsets = append(w.offsets, int64(2*i))
	}
	n := rapid.SampledFrom([]int{20, 100, 500}).Draw(rt, "n")
	steps := rapid.SliceOfN(rapid.Uint32(), n/2, n).Draw(rt, "steps")
	synctest.Test(t, func(t *testing.T) {
		var err error
		if w.ledger, err = lease.NewMemory(lease.Config{MaxRetries: w.retries}); err != nil {
			t.Fatal(err)
		}
		w.assign()
		for _, n := range steps {
			w.do(int(n * 2654435769 >> 8)) // rapid prefers small numbers
			if w.check(); w.wrong != "" {
				return
			}
		}
		w.settle()
	})
	return w
}

// Whatever its calls answer, every step of the machine is right.
func TestPropertyWalk(t *testing.T) {
	calls := map[call]int{}
	rapid.Check(t, func(rt *rapid.T) {
		for range 40 {
			if w := walk(t, rt, calls); w.wrong != "" {
				rt.Log(strings.Join(w.history, "\n"))
				rt.Fatal(w.wrong)
			}
		}
	})
	for c := offer; c <= deliver; c++ {
		if calls[c] == 0 {
			t.Errorf("call %d was never made: %v", c, calls)
		}
	}
}
