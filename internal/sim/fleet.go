// A fleet: servers behind a load balancer, and users who retry. One event is processed at a time, so the seed determines the run.

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

// A Fleet is a set of equal servers and the trigger that disturbs them.
type Fleet struct {
	Name string
	// Servers is the number of servers in each hop, Cores the number of processors of each server.
	Servers, Cores int
	// Front is the processor time that each hop before the last spends on a request before it calls the next hop; Work is the
	// work of the last hop. Empty: users call the last hop. With Propagate, a call between hops carries the user's deadline and
	// priority; without, it has normal priority and the timeout Inner.
	Front     []time.Duration
	Propagate bool
	Inner     time.Duration
	// Places is the number of calls that the shared dependency serves at a time; 0: unlimited.
	Places int
	// Work is the median work of a request.
	Work Work
	// Capacity is the requests per second that the healthy fleet can serve.
	Capacity float64
	// Load is the rate of first attempts, relative to Capacity.
	Load float64
	// From and Until bound the trigger: the load is Peak, and calls of the dependency take Slow times as long (0: normal). With
	// Down, every server rejects everything.
	From, Until time.Duration
	Peak, Slow  float64
	Down        bool
	// Length is how long users arrive.
	Length time.Duration
	// Timeout bounds an attempt.
	Timeout time.Duration
	Retry   Retry
	Guard   Guard
	Seed    uint64
	// Drain continues the run until the servers are idle, not only until every user has an outcome.
	Drain bool
}

// hop is the network latency of a message between user and server.
const hop = 500 * time.Microsecond

// fleet is a running Fleet. All fields belong to the loop's goroutine, except those that mu guards.
type fleet struct {
	Fleet
	start   time.Time
	events  events
	numbers uint64
	servers []*server
	dep     *dependency
	chance  *rand.Rand // random source of load balancing and backoff, which depend on earlier outcomes
	client  client
	open    int  // requests without an outcome
	arrived bool // no more users arrive
	stirred bool // a goroutine that waits in a limiter may have become runnable
	result  *FleetResult

	wake    chan struct{} // capacity 1: settled is not empty
	mu      sync.Mutex    // guards settled
	settled []settlement
}

// settlement is a limiter's answer to an attempt.
type settlement struct {
	*attempt
	permit limiter.Permit
	err    error
}

// RunFleet runs a fleet to its end. Call it inside a synctest bubble.
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

// after schedules do in d.
func (f *fleet) after(d time.Duration, do func()) {
	f.numbers++
	heap.Push(&f.events, event{f.now() + d, f.numbers, do})
}

// every schedules do every d until the end of the run, first in d.
func (f *fleet) every(first, d time.Duration, do func()) {
	f.after(first, func() {
		do()
		if !f.over() {
			f.every(d, d, do)
		}
	})
}

// over reports whether the run has ended.
func (f *fleet) over() bool {
	return f.arrived && f.open == 0 && (!f.Drain || !slices.ContainsFunc(f.servers, func(s *server) bool { return s.inside > 0 }))
}

// loop processes events in order of time, and of scheduling for equal times.
//
// Only tasks in a limiter's queue are goroutines, which sleep until an answer or their deadline. After each event and each advance
// of time, the loop waits until all of them block, and processes their answers in order of the attempts. Therefore no result
// depends on the order in which the Go scheduler runs them.
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

// acquire requests a slot from a server's limiter and queues the answer in settled.
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

// events is a heap, earliest first.
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

// down reports whether servers reject everything now.
func (f *fleet) down() bool { return f.Down && f.now() >= f.From && f.now() < f.Until }

func (sc Fleet) load(at time.Duration) float64 {
	if sc.Peak > 0 && at >= sc.From && at < sc.Until {
		return sc.Peak
	}
	return sc.Load
}
