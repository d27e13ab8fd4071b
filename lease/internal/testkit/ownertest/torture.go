// SPDX-License-Identifier: Apache-2.0

// The torture: rounds of one random fault each. After each round the group must come to rest with a correct account.

package ownertest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/internal/child"
	"github.com/stopbank/stopbank/lease/internal/testkit/faults"
)

// Torture lets Consumers process records while members join, leave, are killed and frozen and servers are restarted, for
// -torture.time; without that flag it runs one round of each kind with a fixed seed. Open must set the fields of Group for
// Torture, and its ledgers must allow a hundred retries. If members can be processes, TestMain calls Child first.
//
// Every round writes records, causes one fault while they are processed, writes more, and waits until the group is at rest:
// each record handled, each partition held by one present member, evenly, each floor at the end of its log. One kind of round
// stops members at chosen calls of source and ledger, and every call of taking a partition over must have its turn. Handlers
// apply effects to an account that compares tokens and knows the records written, and those committed at rest. It finds
//
//   - lost: a record that was given up, or committed without being handled;
//   - doubled: a record handled again under the token of its effect, or after a rest;
//   - disordered: a record handled before an earlier one of its domain;
//   - stuck: a key for which no handler is called within two leases, or HandOver, and 5 s of the last fault, in time in
//     which the server is up, this machine keeps pace, and no other handler takes its time; no rest within a minute of such
//     time; or a member that does not end;
//   - others: a partition that stands still without a reason (D12), a token for two records or two members, a member that
//     ends by itself.
func Torture(t *testing.T, open Open) {
	t.Helper()
	TortureIn(t, inRealTime, open)
}

// TortureIn is Torture with the life of each group inside within: synctest.Test, for an engine whose network is in memory too.
func TortureIn(t *testing.T, within func(t *testing.T, life func(t *testing.T)), open Open) {
	t.Helper()
	long, seed := faults.Budget()
	groups := 3 // most of a round is waiting
	if long == 0 {
		groups, seed = 1, max(seed, 1)
	}
	for seed == 0 {
		seed = rand.Uint64() >> 32
	}
	t.Logf("seed %d (-torture.seed)", seed)
	var mu sync.Mutex // guards the next
	rounds, stops, waited := map[string]int{}, map[string]int{}, 0.0
	total := newAccount()
	var server server
	var next atomic.Uint64
	var group sync.WaitGroup
	began := time.Now()
	for range groups {
		group.Go(func() {
			for n := next.Add(1); n <= uint64(groups) || time.Since(began) < long && !t.Failed(); n = next.Add(1) {
				t.Run(fmt.Sprint("group", n), func(t *testing.T) {
					within(t, func(t *testing.T) {
						w := newTorture(t, &server, seed, n)
						defer func() {
							total.add(w.account)
							mu.Lock()
							defer mu.Unlock()
							for kind, n := range w.rounds {
								rounds[kind] += n
							}
							for step, n := range w.stops {
								stops[step] += n
							}
							waited = max(waited, w.slowest.Seconds()/w.keyPatience().Seconds())
						}()
						w.run(open)
					})
				})
			}
		})
	}
	group.Wait()
	all := 0
	for _, kind := range kinds {
		if rounds[kind.name] > 0 {
			t.Logf("owners: %-44s %6d rounds", kind.name, rounds[kind.name])
		} else {
			t.Logf("owners: %-44s left out: not with this engine", kind.name)
		}
		all += rounds[kind.name]
	}
	missed := 0
	for _, step := range append(takingOver(), otherSteps()...) {
		t.Logf("owners: stopped %-36s %6d times", step, stops[step])
		// Ledgers in memory, which a test names so, seldom show a new owner the leases of the dead: what is done with those
		// may be left out.
		seldom := strings.HasSuffix(t.Name(), "InMemory") && (strings.HasSuffix(step, "Reclaim") ||
			strings.HasSuffix(step, "Commit"))
		if stops[step] > 0 || !strings.HasPrefix(step, "taking") || seldom || t.Failed() {
			continue
		}
		if missed++; long > 0 || missed > 3 { // by chance one life may miss a few
			t.Errorf("no member was stopped %s", step)
		}
	}
	t.Logf("owners: the slowest key moved after %.0f %% of the time that it had after the last fault", 100*waited)
	t.Logf("owners: all %d rounds, %d records, %d redone under a greater token, %d refused by the fence, %d dead letters | "+
		"lost %d, doubled %d, disordered %d, stuck %d, other violations %d", all, total.undone, total.redone, total.refused,
		total.deadLetters, total.lost, total.doubled, total.disordered, total.stuck, total.violation)
}

// Long reports whether -torture.time is set.
func Long() bool {
	long, _ := faults.Budget()
	return long > 0
}

// keyPatience is how long after the last fault every key has moved: two leases, or what the group needs to hand a partition
// over, and the longest pause of a dispatch.Dispatcher after errors of its engine.
func (w *torture) keyPatience() time.Duration {
	const pause = 5 * time.Second
	return max(2*w.group.Lease, w.group.HandOver) + pause
}

// torture is one group under torture.
type torture struct {
	testing.TB
	*account
	group   Group
	server  *server
	rnd     *rand.Rand
	rounds  map[string]int
	stops   map[string]int       // members stopped, by step
	late    func() time.Duration // how late messages of new members are; nil: they are not
	slow    int                  // how many bytes a second reach new members; 0: they have no bound
	large   int                  // bytes that the next records have besides
	written int
	faults  atomic.Int32 // members that died or were stopped

	canBeLate  bool          // a member has been late, or can be
	slowest    time.Duration // the longest that a key has waited after the last fault
	slowestKey string

	crew   sync.Mutex // guards all below, and the hands' guarded fields
	hands  []*hand
	armed  string // the step at which the next member stops; "": none
	halted *hand  // the one that did
}

func newTorture(t testing.TB, server *server, seed, group uint64) *torture {
	return &torture{
		TB: t, account: newAccount(), server: server, rnd: rand.New(rand.NewPCG(seed, group)), rounds: map[string]int{},
		stops: map[string]int{},
	}
}

// server is the one that all groups have, locked for writing during a restart, and for reading while a call needs it.
type server struct {
	sync.RWMutex
	away time.Duration // in restarts; guarded by the lock
}

func (s *server) restart(do func() error) error {
	s.Lock()
	defer s.Unlock()
	began := time.Now()
	defer func() { s.away += time.Since(began) }()
	return do()
}

// waiting begins to wait; over reports whether that is longer than patience. A restart, whichever group's it is, does not count.
func (s *server) waiting() (over func() bool) {
	s.RLock()
	defer s.RUnlock()
	until := time.Now().Add(patience - s.away)
	return func() bool {
		s.RLock()
		defer s.RUnlock()
		return time.Now().After(until.Add(s.away))
	}
}

// late and slow are the kinds that need members with a network that can be late and slow.
const (
	late = "a storm while much arrives late"
	slow = "members change while large records come slowly"
)

// kind is a kind of round. do causes the fault; the function it returns, if any, runs after the others have come to rest.
type kind struct {
	name string
	do   func(w *torture) (after func())
}

var kinds = []kind{
	{"a member joins", func(w *torture) func() { w.join(); return nil }},
	{"a member leaves", func(w *torture) func() { w.leave(w.pick()); return nil }},
	{"a member is killed", func(w *torture) func() { w.kill(w.pick()); return nil }},
	{"a member frozen past its lease", func(w *torture) func() {
		h := w.pick()
		w.freeze(h)
		w.pause(w.group.Lease, 3*w.group.Lease)
		w.wake(h)
		return nil
	}},
	{"a member frozen for less", func(w *torture) func() {
		h := w.pick()
		w.freeze(h)
		w.pause(0, w.group.Lease)
		w.wake(h)
		return nil
	}},
	{"a member frozen until others did its work", func(w *torture) func() {
		h := w.pick()
		w.freeze(h)
		return func() { w.wake(h) }
	}},
	{"everybody frozen", func(w *torture) func() {
		hands := w.there()
		for _, h := range hands {
			w.freeze(h)
		}
		w.pause(0, 2*w.group.Lease)
		for _, h := range hands {
			w.wake(h)
		}
		return nil
	}},
	{"many come and go at once", func(w *torture) func() {
		for range 2 + w.rnd.IntN(3) {
			switch w.rnd.IntN(3) {
			case 0:
				w.leave(w.pick())
			case 1:
				w.kill(w.pick())
			}
			w.join()
		}
		return nil
	}},
	{"a storm of joins and leaves", func(w *torture) func() { w.storm(); return nil }},
	{late, func(w *torture) func() {
		w.late = w.lateness()
		for _, h := range w.there() {
			h.late(w.late)
		}
		w.storm()
		w.late = nil
		for _, h := range w.hands {
			h.late(nil)
		}
		return nil
	}},
	{slow, func(w *torture) func() {
		w.slow = 2 << 20
		for _, h := range w.there() {
			if h.slow == nil { // nobody else may do what slow ones do not
				w.leave(h)
			} else {
				h.slow(w.slow)
			}
		}
		for range 4 {
			w.large = 128 << 10
			w.write(10, 1000)
			w.large = 0
			w.join()
		}
		w.leave(w.pick())
		return func() {
			w.slow = 0
			for _, h := range w.hands {
				if h.slow != nil {
					h.slow(0)
				}
			}
		}
	}},
	{"members stopped between two steps", func(w *torture) func() {
		steps, other := takingOver(), otherSteps()
		for range 3 {
			steps = append(steps, other[w.rnd.IntN(len(other))])
		}
		for _, i := range w.rnd.Perm(len(steps)) {
			if !w.stop(steps[i]) {
				break
			}
		}
		return nil
	}},
	{"handlers fail, panic, hang and kill", func(w *torture) func() { w.write(30, 3); return nil }},
	{"the server restarted", func(w *torture) func() {
		if err := w.server.restart(w.group.Restart); err != nil {
			w.Fatal(err)
		}
		return nil
	}},
}

// mostMembers is the highest number of members at a time.
const mostMembers = 4

// run is the life of a group: each kind of round once, in random order.
func (w *torture) run(open Open) {
	w.up(func() { w.group = open(w, 4) })
	defer w.end()
	w.join()
	for _, i := range w.rnd.Perm(len(kinds)) {
		if kinds[i].name == "the server restarted" && w.group.Restart == nil ||
			(kinds[i].name == late || kinds[i].name == slow) && !w.canBeLate {
			continue
		}
		w.write(20+w.rnd.IntN(30), 20)
		w.begins()
		after := kinds[i].do(w)
		w.write(5, 20)
		ok := w.settle(kinds[i].name)
		if after != nil {
			after()
			ok = ok && w.settle(kinds[i].name+", and awake again")
		}
		if !ok {
			return
		}
		w.rounds[kinds[i].name]++
	}
	// Messages of dead members arrive now and must have no effect.
	for _, h := range w.hands {
		w.rouse(h)
	}
	w.write(20, 20)
	w.settle("the dead are heard of again")
}

// write writes n records. One in oddity records gets another instruction than to apply its effect: one of odd, or any.
func (w *torture) write(n, oddity int, odd ...string) {
	if len(odd) == 0 {
		odd = []string{sayFail, sayPanic, sayExit, sayHang, saySlow, saySlow, sayDie, sayPermanent}
	}
	for range n {
		partition := w.group.Partitions[w.rnd.IntN(len(w.group.Partitions))]
		domain, payload := fmt.Sprint("k", w.rnd.IntN(5)), fmt.Sprint(w.written)
		w.written++
		say, times := "", 0
		if w.rnd.IntN(oddity) == 0 {
			say, times = odd[w.rnd.IntN(len(odd))], 1+w.rnd.IntN(2)
		}
		w.writes(partition, domain, payload, say, times)
		data := []byte(payload)
		if w.large > 0 {
			data = append(data, ' ')
			for range w.large { // no engine compresses it
				data = append(data, byte(w.rnd.IntN(256)))
			}
		}
		w.up(func() { w.group.Append(partition, domain, data) })
	}
}

// begins waits until some of the new records are done, so that work is in progress when the fault happens.
func (w *torture) begins() {
	undone, _ := w.open()
	until := time.Now().Add(2 * w.group.Lease)
	for left := undone; left > 0 && left > undone-w.rnd.IntN(undone+1) && time.Now().Before(until); left, _ = w.open() {
		time.Sleep(time.Millisecond) // handlers send no events
	}
}

func (w *torture) pause(least, most time.Duration) {
	time.Sleep(least + time.Duration(w.rnd.Int64N(int64(most-least))))
}

// enlist registers a new member.
func (w *torture) enlist(h *hand, what string) {
	w.crew.Lock()
	defer w.crew.Unlock()
	h.name = fmt.Sprint(what, " ", len(w.hands))
	w.hands = append(w.hands, h)
}

// join adds a member; another one leaves if there are enough.
func (w *torture) join() {
	if there := w.there(); len(there) == mostMembers {
		w.leave(there[w.rnd.IntN(len(there))])
	}
	w.up(func() {
		if w.group.Process != "" && child.Possible && w.slow == 0 && w.rnd.IntN(2) == 0 {
			w.process()
		} else {
			w.member()
		}
	})
}

// up runs do while the server is up.
func (w *torture) up(do func()) {
	w.server.RLock()
	defer w.server.RUnlock()
	do()
}

// there returns the members that should hold partitions.
func (w *torture) there() (hands []*hand) {
	w.crew.Lock()
	defer w.crew.Unlock()
	for _, h := range w.hands {
		if !h.silent && !h.gone && !h.die {
			hands = append(hands, h)
		}
	}
	return hands
}

// pick returns a present member; if there is none, it adds one.
func (w *torture) pick() *hand {
	for {
		if hands := w.there(); len(hands) > 0 {
			return hands[w.rnd.IntN(len(hands))]
		}
		w.join()
	}
}

func (w *torture) set(flag *bool, to bool) {
	w.crew.Lock()
	defer w.crew.Unlock()
	*flag = to
}

func (w *torture) leave(h *hand) { w.set(&h.gone, true); h.leave() }
func (w *torture) kill(h *hand)  { w.killed(h); h.kill() }
func (w *torture) killed(h *hand) {
	w.set(&h.die, true)
	w.faults.Add(1)
}
func (w *torture) freeze(h *hand) { w.set(&h.silent, true); h.cut() }

func (w *torture) wake(h *hand) {
	w.crew.Lock()
	defer w.crew.Unlock()
	if h.silent = false; !h.die { // it may have died before it was silenced
		h.mend()
	}
	h.goOnLocked()
}

// storm has members come and go, without a fault.
func (w *torture) storm() {
	for range 12 {
		if w.rnd.IntN(3) == 0 {
			w.leave(w.pick())
		}
		w.join()
		w.write(2, 1000)
		w.pause(0, w.group.Lease/2)
	}
}

// lateness delays one message in six, by up to a lease.
func (w *torture) lateness() func() time.Duration {
	var mu sync.Mutex // guards rnd
	rnd := rand.New(rand.NewPCG(w.rnd.Uint64(), 0))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return max(0, time.Duration(rnd.Int64N(6*int64(w.group.Lease)))-5*w.group.Lease)
	}
}

// settle waits for the group to come to rest, and reports whether it did so without violations.
func (w *torture) settle(when string) bool {
	var keys progress
	for ; ; time.Sleep(3 * time.Millisecond) { // an engine sends no event when it has come to rest
		if waited, which := keys.look(w); waited > w.slowest {
			w.slowest, w.slowestKey = waited, when+": "+which
		}
		if len(w.there()) == 0 {
			w.join()
		}
		w.crew.Lock()
		why := w.unrestLocked()
		w.crew.Unlock()
		undone, violations := w.open()
		if why == "" && undone == 0 {
			behind, err := w.group.Behind()
			if err == nil && len(behind) == 0 {
				w.rest()
				_, violations = w.open()
				if violations == 0 {
					return true
				}
			}
			why = fmt.Sprintf("floors of %v are behind (%v)", behind, err)
		}
		if violations == 0 && (keys.clock > patience || w.slowest > w.keyPatience()) {
			w.hangs("%d records are not done; %s; the slowest key: %v, %s", undone, why, w.slowest, w.slowestKey)
			violations++
		}
		if violations > 0 {
			w.Errorf("%s: %s\n%s", when, w.report(), w.roll())
			return false
		}
	}
}

// hangs records that something is stuck, and where.
func (w *torture) hangs(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.foundLocked(&w.stuck, format, args...)
	stacks := make([]byte, 1<<20)
	w.Logf("%s", stacks[:runtime.Stack(stacks, true)])
}

// unrestLocked returns the reason why the group is not at rest, or "". It needs the lock of the crew.
func (w *torture) unrestLocked() string {
	var there []*hand
	for _, h := range w.hands {
		ended := false
		select {
		case <-h.ended:
			ended = true
		default:
		}
		switch {
		case h.die || h.silent:
		case h.gone && !ended:
			return h.name + " does not leave"
		case ended && h.err != nil || ended && !h.gone:
			w.mu.Lock()
			w.foundLocked(&w.violation, "%s has ended: %v", h.name, h.err)
			w.mu.Unlock()
			h.die = true
		case !h.gone:
			there = append(there, h)
		}
	}
	held := map[string]int{}
	for _, h := range there {
		n := 0
		for p, times := range h.holds {
			n += times
			held[p] += times
		}
		if least := len(w.group.Partitions) / len(there); n < least || n > least+1 {
			return fmt.Sprintf("%s holds %d partitions", h.name, n)
		}
	}
	for _, p := range w.group.Partitions {
		if held[p] != 1 {
			return fmt.Sprintf("%d members hold %s", held[p], p)
		}
	}
	return ""
}

// roll describes the members.
func (w *torture) roll() string {
	w.crew.Lock()
	defer w.crew.Unlock()
	var all []string
	for _, h := range w.hands {
		all = append(all, fmt.Sprintf("%s (silent %v, gone %v, dead %v) holds %v", h.name, h.silent, h.gone, h.die, h.holds))
	}
	return strings.Join(all, "\n")
}

// end ends every member and waits for it.
func (w *torture) end() {
	w.disarm()
	for _, h := range w.hands {
		w.rouse(h)
		h.leave()
	}
	over := w.server.waiting()
	for _, h := range w.hands {
		for ended := false; !ended; {
			select {
			case <-h.ended:
				ended = true
			case <-time.After(patience / 60):
				if over() {
					w.hangs("%s does not end", h.name)
					w.Errorf("%s does not end", h.name)
					return
				}
			}
		}
	}
}
