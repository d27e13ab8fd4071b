// SPDX-License-Identifier: Apache-2.0

// The torture: rounds of one random fault each. After each round the group must come to rest with a correct account.

package ownertest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/internal/child"
)

var (
	tortureTime = flag.Duration("torture.time", 0, "how long faults are injected; 0: one round of each kind")
	tortureSeed = flag.Uint64("torture.seed", 0, "seed of the choices; 0: a new one, which is printed")
)

// Budget returns the values of -torture.time and -torture.seed.
func Budget() (long time.Duration, seed uint64) { return *tortureTime, *tortureSeed }

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
	long, seed := Budget()
	groups := 3 // most of a round is waiting
	if long == 0 {
		groups, seed = 1, max(seed, 1)
	}
	for seed == 0 {
		seed = rand.Uint64() >> 32
	}
	t.Logf("seed %d (-torture.seed)", seed)
	var mu sync.Mutex // guards the next
	total, waited := map[string]int{}, 0.0
	var server sync.RWMutex
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
							mu.Lock()
							defer mu.Unlock()
							for what, n := range w.counts {
								total[what] += n
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
		if n := total[kind.name]; n > 0 {
			t.Logf("owners: %-44s %6d rounds", kind.name, n)
		} else {
			t.Logf("owners: %-44s left out: not with this engine", kind.name)
		}
		all += total[kind.name]
	}
	missed := 0
	for _, step := range append(takingOver(), otherSteps()...) {
		t.Logf("owners: stopped %-36s %6d times", step, total[step])
		// Ledgers in memory, which a test names so, seldom show a new owner the leases of the dead: what is done with those
		// may be left out.
		seldom := strings.HasSuffix(t.Name(), "InMemory") && (strings.HasSuffix(step, "Reclaim") ||
			strings.HasSuffix(step, "Commit"))
		if total[step] > 0 || !strings.HasPrefix(step, "taking") || seldom || t.Failed() {
			continue
		}
		if missed++; long > 0 || missed > 3 { // by chance one life may miss a few
			t.Errorf("no member was stopped %s", step)
		}
	}
	t.Logf("owners: the slowest key moved after %.0f %% of the time that it had after the last fault", 100*waited)
	t.Logf("owners: all %d rounds, %d records, %d %s, %d %s, %d %s | lost %d, doubled %d, disordered %d, stuck %d, other violations %d",
		all, total["records"], total[redone], redone, total[refused], refused, total[deadLetters], deadLetters,
		total[lost], total[doubled], total[disordered], total[stuck], total[other])
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
	server  *sync.RWMutex // of all groups: held for writing during a restart, and for reading while a call needs the server
	rnd     *rand.Rand
	late    func() time.Duration // how late messages of new members are; nil: they are not
	slow    int                  // how many bytes a second reach new members; 0: they have no bound
	large   int                  // bytes that the next records have besides
	written int
	after   func()       // what a round does when the others have come to rest; nil: nothing
	faults  atomic.Int32 // members that died or were stopped

	lined      bool          // a member has, or had, a line
	slowest    time.Duration // the longest that a key has waited after the last fault
	slowestKey string

	crew   sync.Mutex // guards all below, and the hands' guarded fields
	hands  []*hand
	armed  string // the step at which the next member stops; "": none
	deadly bool   // it is killed there instead
	halted *hand  // the one that did, or was
}

func newTorture(t testing.TB, server *sync.RWMutex, seed, group uint64) *torture {
	return &torture{TB: t, account: newAccount(), server: server, rnd: rand.New(rand.NewPCG(seed, group))}
}

// The kinds that need members with a Line.
const (
	late  = "a storm while much arrives late"
	slow  = "members change while large records come slowly"
	lossy = "replies lost with their connections"
)

// kind is a kind of round. do causes the fault, and may set what is to be done when the others have come to rest.
type kind struct {
	name string
	do   func(w *torture)
}

var kinds = []kind{
	{"a member joins", func(w *torture) { w.join() }},
	{"a member leaves", func(w *torture) { w.leave(w.pick()) }},
	{"a member is killed", func(w *torture) { w.kill(w.pick()) }},
	{"a member frozen past its lease", func(w *torture) {
		h := w.pick()
		w.freeze(h)
		w.pause(w.group.Lease, 3*w.group.Lease)
		w.wake(h)
	}},
	{"a member frozen for less", func(w *torture) {
		h := w.pick()
		w.freeze(h)
		w.pause(0, w.group.Lease)
		w.wake(h)
	}},
	{"a member frozen until others did its work", func(w *torture) {
		h := w.pick()
		w.freeze(h)
		w.after = func() { w.wake(h) }
	}},
	{"everybody frozen", func(w *torture) {
		hands := w.there()
		for _, h := range hands {
			w.freeze(h)
		}
		w.pause(0, 2*w.group.Lease)
		for _, h := range hands {
			w.wake(h)
		}
	}},
	{"many come and go at once", func(w *torture) {
		for range 2 + w.rnd.IntN(3) {
			switch w.rnd.IntN(3) {
			case 0:
				w.leave(w.pick())
			case 1:
				w.kill(w.pick())
			}
			w.join()
		}
	}},
	{"a storm of joins and leaves", func(w *torture) { w.storm() }},
	{late, func(w *torture) {
		w.late = w.lateness()
		for _, h := range w.lines() {
			h.line.Late(w.late)
		}
		w.storm()
		w.late = nil
		for _, h := range w.lines() {
			h.line.Late(nil)
		}
	}},
	{slow, func(w *torture) {
		w.slow = 2 << 20
		for _, h := range w.there() {
			if h.line == nil { // nobody else may do what slow ones do not
				w.leave(h)
			} else {
				h.line.Slow(w.slow)
			}
		}
		for range 4 {
			w.large = 128 << 10
			w.write(10, 1000)
			w.large = 0
			w.join()
		}
		w.leave(w.pick())
		w.after = func() {
			w.slow = 0
			for _, h := range w.lines() {
				h.line.Slow(0)
			}
		}
	}},
	{lossy, func(w *torture) {
		lost := 0
		for range 6 {
			h := w.pick()
			if h.line == nil { // a process of its own makes room
				w.leave(h)
				w.up(func() { h = w.member() })
			}
			before := h.line.Dropped()
			for range 5 {
				h.line.Drop()
				w.write(2, 20)
				w.pause(0, w.group.Lease/4)
			}
			lost += h.line.Dropped() - before
			w.faults.Add(1)
		}
		if lost == 0 {
			w.Error("no reply was lost")
		}
	}},
	{"members killed between two steps", func(w *torture) {
		steps := append(takingOver(), otherSteps()...)
		kills := 0
		for n := 0; n < 5 || kills == 0 && n < 20; n++ {
			w.arm(steps[w.rnd.IntN(len(steps))], true)
			w.join()
			w.write(10, 1000)
			w.pause(w.group.Lease, 2*w.group.Lease)
			if w.disarm() != nil {
				kills++
			}
		}
		if kills == 0 {
			w.Error("nobody was killed")
		}
	}},
	{"members stopped between two steps", func(w *torture) {
		steps, other := takingOver(), otherSteps()
		for range 3 {
			steps = append(steps, other[w.rnd.IntN(len(other))])
		}
		for _, i := range w.rnd.Perm(len(steps)) {
			if !w.stop(steps[i]) {
				break
			}
		}
	}},
	{"handlers fail, panic, hang and kill", func(w *torture) { w.write(30, 3) }},
	{"the server restarted", func(w *torture) {
		w.server.Lock()
		defer w.server.Unlock()
		if err := w.group.Restart(); err != nil {
			w.Fatal(err)
		}
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
			slices.Contains([]string{late, slow, lossy}, kinds[i].name) && !w.lined {
			continue
		}
		w.write(20+w.rnd.IntN(30), 20)
		w.begins()
		w.after = nil
		kinds[i].do(w)
		w.write(5, 20)
		ok := w.settle(kinds[i].name)
		if w.after != nil {
			w.after()
			ok = ok && w.settle(kinds[i].name+", and awake again")
		}
		if !ok {
			return
		}
		w.count(kinds[i].name)
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

// lines returns the members with a line, dead or not.
func (w *torture) lines() (hands []*hand) {
	w.crew.Lock()
	defer w.crew.Unlock()
	for _, h := range w.hands {
		if h.line != nil {
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
	w.foundLocked(stuck, format, args...)
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
			w.foundLocked(other, "%s has ended: %v", h.name, h.err)
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
	for _, h := range w.hands {
		select {
		case <-h.ended:
		case <-time.After(5 * patience): // the server may be away, and be restarted again for others
			w.hangs("%s does not end", h.name)
			w.Errorf("%s does not end", h.name)
			return
		}
	}
}
