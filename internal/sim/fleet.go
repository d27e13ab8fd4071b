// A fleet: servers behind a balancer, and users who try again; one event after the other, so that a seed says all.

package sim

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// A Fleet is a number of equal servers, and what happens to them.
type Fleet struct {
	Name string
	// Servers is how many there are in each hop, Cores how many processors each one has.
	Servers, Cores int
	// Front is the processor time that each hop before the last takes for a request before it calls the next one; Work is
	// that of the last. Empty: users call the last hop. Propagate says that a call between hops carries its user's deadline and
	// priority; else it has normal priority and Inner to be answered.
	Front     []time.Duration
	Propagate bool
	Inner     time.Duration
	// Places is how many calls the dependency serves at once, which all servers share; 0: any number.
	Places int
	// Work is the median of what one request needs.
	Work Work
	// Capacity is how many requests per second the fleet can do while nothing is wrong.
	Capacity float64
	// Load is what users ask for, in capacities, not counting what they ask for again.
	Load float64
	// From and Until are when the trigger is there: the load is Peak then, and calls of the dependency take Slow times as
	// long; 0: as usual. Down: every server refuses everything.
	From, Until time.Duration
	Peak, Slow  float64
	Down        bool
	// Length is how long users come.
	Length time.Duration
	// Timeout is how long an attempt may take.
	Timeout time.Duration
	Retry   Retry
	Guard   Guard
	Seed    uint64
	// Drain says that the run goes on until the servers have nothing left, and not only the users.
	Drain bool
}

// hop is how long a message takes between user and server.
const hop = 500 * time.Microsecond

// fleet is a running Fleet. All of it belongs to the goroutine of the loop, but for what mu guards.
type fleet struct {
	Fleet
	start   time.Time
	events  events
	numbers uint64
	servers []*server
	dep     *dependency
	chance  *rand.Rand // for what depends on earlier outcomes: balancing and backing off
	client  client
	open    int  // requests without an outcome
	arrived bool // nobody comes any more
	stirred bool // a goroutine that waits in a limiter may have something to do
	result  *FleetResult

	wake    chan struct{} // has room for one: settled is not empty
	mu      sync.Mutex    // guards settled
	settled []settlement
}

// settlement is what a limiter has answered to an attempt.
type settlement struct {
	*attempt
	permit limiter.Permit
	err    error
}

// RunFleet runs a fleet to its end. It must be called inside a bubble.
func RunFleet(sc Fleet) (*FleetResult, error) {
	f := &fleet{
		Fleet: sc, start: time.Now(), dep: &dependency{servers: sc.Places}, wake: make(chan struct{}, 1),
		chance: rand.New(rand.NewPCG(sc.Seed, 2)), result: newFleetResult(sc),
	}
	defer func() {
		for _, s := range f.servers {
			s.close()
		}
	}()
	var err error
	if f.client, err = newClient(sc, f.chance); err != nil {
		return nil, err
	}
	for i := range sc.Servers * (len(sc.Front) + 1) {
		s, err := newServer(f, i)
		if err != nil {
			return nil, err
		}
		f.servers = append(f.servers, s)
	}
	f.after(sc.From, func() { f.dep.slowBy(sc.Slow) })
	f.after(sc.Until, func() { f.dep.slowBy(0) })
	f.arrivals()
	f.loop()
	for _, s := range f.servers {
		f.result.inside += s.inside
	}
	return f.result, nil
}

func (f *fleet) now() time.Duration { return time.Since(f.start) }

// after has something done d from now.
func (f *fleet) after(d time.Duration, do func()) {
	f.numbers++
	heap.Push(&f.events, event{f.now() + d, f.numbers, do})
}

// every has something done each d, first after that time, as long as the fleet runs.
func (f *fleet) every(first, d time.Duration, do func()) {
	f.after(first, func() {
		do()
		if !f.over() {
			f.every(d, d, do)
		}
	})
}

// over is whether the run has shown what it can.
func (f *fleet) over() bool {
	return f.arrived && f.open == 0 && (!f.Drain || !slices.ContainsFunc(f.servers, func(s *server) bool { return s.inside > 0 }))
}

// loop does what is due, in order of time and then of planning.
//
// Only a waiter in a limiter's queue is a goroutine. It sleeps until a limiter's answer or its deadline; the loop lets all of them come to rest
// after whatever it did and whenever time has passed, and takes what they were answered in order of the attempts. So nothing
// depends on which goroutine the scheduler prefers.
func (f *fleet) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !f.over() {
		f.settle()
		if wait := f.events[0].at - f.now(); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-f.wake:
			}
			f.stirred = true
			continue
		}
		heap.Pop(&f.events).(event).do()
	}
}

func (f *fleet) settle() {
	if !f.stirred || !f.Guard.limits() {
		return
	}
	f.stirred = false
	synctest.Wait()
	f.mu.Lock()
	settled := f.settled
	f.settled = nil
	f.mu.Unlock()
	slices.SortFunc(settled, func(a, b settlement) int { return cmp.Compare(a.number, b.number) })
	for _, a := range settled {
		a.at.settled(a)
	}
}

// acquire asks a server's limiter, and settles what it answers.
func (f *fleet) acquire(a *attempt, ask func() (limiter.Permit, error)) {
	f.stirred = true
	go func() {
		permit, err := ask()
		f.mu.Lock()
		f.settled = append(f.settled, settlement{a, permit, err})
		f.mu.Unlock()
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}()
}

type event struct {
	at     time.Duration
	number uint64
	do     func()
}

// events is a heap.
type events []event

func (e *events) Len() int { return len(*e) }
func (e *events) Less(i, j int) bool {
	a, b := (*e)[i], (*e)[j]
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.number, b.number)) < 0
}
func (e *events) Swap(i, j int) { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }
func (e *events) Push(x any)    { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return x
}

// down says whether servers refuse everything now.
func (f *fleet) down() bool { return f.Down && f.now() >= f.From && f.now() < f.Until }

func (sc Fleet) load(at time.Duration) float64 {
	if sc.Peak > 0 && at >= sc.From && at < sc.Until {
		return sc.Peak
	}
	return sc.Load
}
