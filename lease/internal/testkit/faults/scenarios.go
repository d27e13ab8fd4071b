// SPDX-License-Identifier: Apache-2.0

// The scenarios: one function for each kind of fault.

package faults

import (
	"context"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/proxy"
)

type scenario struct {
	name  string
	play  func(*round)
	needs func(Server) bool // nil: every server
}

var scenarios = []scenario{
	{name: "killed between swap and reply", play: killed},
	{name: "a record that kills its process", play: poisoned},
	{name: "holder stopped, reclaimed, resumed", play: stopped},
	{name: "given back and taken over", play: handedOver},
	{name: "many processes race for one domain", play: raced},
	{name: "reply dropped by the network", play: dropped, needs: func(s Server) bool { return s.Via != nil }},
	{name: "server restarted under load", play: restarted, needs: func(s Server) bool { return s.Restart != nil }},
	{name: "all at once", play: storm},
}

var abc = []string{"A", "B", "C"}

// killed: a worker dies between a swap and its reply. The next worker finds its leases.
func killed(r *round) {
	r.offer(4, abc...)
	for {
		p := r.start(order{TakeOver: true, Alone: true, HangAfter: 1 + r.rnd.IntN(12)})
		if _, hung := p.until("swapped"); !hung {
			r.ends(p)
			return
		}
		p.kill()
		r.faults++
	}
}

// poisoned: one record kills every worker that handles it. Takeover by takeover, its retries are used up.
func poisoned(r *round) {
	r.offer(3, abc...)
	r.maxRetries = 1 + r.rnd.IntN(3)
	r.poison = &Entry{Domain: "B", Offset: r.arrived["B"][r.rnd.IntN(3)]}
	for {
		p := r.start(order{TakeOver: true, Alone: true, Poison: r.poison})
		if _, ok := p.until("finished"); ok {
			r.ends(p)
			break
		}
		p.drain()
		if r.faults++; r.faults > r.maxRetries+1 {
			r.Fatalf("%d processes have died of one record, which has %d attempts", r.faults, r.maxRetries+1)
		}
	}
	if r.faults != r.maxRetries+1 || r.heard("gave up") != 1 {
		r.Errorf("%d attempts, given up %d times, want %d and 1", r.faults, r.heard("gave up"), r.maxRetries+1)
	}
}

// stopped: a lease holder pauses during its work, another worker takes over and finishes everything, then the first resumes.
func stopped(r *round) {
	r.offer(3, abc...)
	at := &Entry{Domain: "B", Offset: r.arrived["B"][r.rnd.IntN(3)]}
	sleeper := r.start(order{TakeOver: true, PauseAt: at})
	for {
		n, ok := sleeper.until("holding")
		if !ok {
			r.Fatal("a worker ended without a lease on what it was to stop at")
		}
		if n.Domain == at.Domain && n.Offset == at.Offset {
			break
		}
	}
	sleeper.Stop()
	r.faults++
	r.ends(r.start(order{TakeOver: true, Alone: true}))
	sleeper.Wake()
	_ = sleeper.Tell("go")
	r.ends(sleeper)
	if r.heard("refused") != 1 || r.heard("fenced") != 1 {
		r.Errorf("who was taken for dead was refused downstream %d times and by the ledger %d times, want once each",
			r.heard("refused"), r.heard("fenced"))
	}
}

// handedOver: one worker after the other takes over and releases what it holds. That is no failure and costs no retry.
func handedOver(r *round) {
	r.offer(3, abc...)
	r.maxRetries = 0
	for range 2 + r.rnd.IntN(3) {
		r.ends(r.start(order{TakeOver: true, Alone: true, GiveBack: true}))
		r.faults++
	}
	r.ends(r.start(order{TakeOver: true, Alone: true}))
	if released := r.heard("released"); released != r.faults || r.heard("gave up") != 0 {
		r.Errorf("given back %d times, want %d; given up %d times", released, r.faults, r.heard("gave up"))
	}
}

// raced: several processes compete for one domain. None dies, so every offset is handled exactly once.
func raced(r *round) {
	r.strict = true
	r.offer(6, "A")
	workers := make([]*process, 2+r.rnd.IntN(3))
	for i := range workers {
		workers[i] = r.start(order{})
	}
	r.offer(6, "A") // more offsets arrive meanwhile
	for _, p := range workers {
		r.ends(p)
	}
	r.ends(r.start(order{Alone: true})) // handle offsets that arrived after the others had ended
	r.faults = len(workers)
}

// dropped: the server has applied a swap, and the reply is lost on the network.
func dropped(r *round) {
	r.strict = true
	r.offer(4, abc...)
	network, err := proxy.New(r.server.TCP)
	if err != nil {
		r.Fatal(err)
	}
	defer network.Close()
	ctx := context.Background()
	side, err := r.server.Open(ctx, r.server.Via(network.Addr()), r.ledger)
	if err != nil {
		r.Fatal(err)
	}
	defer side.Close()
	store := &losing{Store: side.Store, past: r.control.Store, proxy: network}
	swaps, sure := 0, r.rnd.IntN(6) // how many there may be until a reply has been lost, whatever chance says
	store.lose = func() bool {
		swaps++
		return r.rnd.IntN(3) == 0 || swaps > sure && store.applied == 0
	}
	side.Store = store
	w := worker{order: order{MaxRetries: r.maxRetries, Alone: true}, side: side, say: r.hear}
	if err := w.run(ctx); err != nil {
		r.Error(err)
	}
	if store.applied == 0 {
		r.Errorf("%d replies were dropped, none of a swap that had been carried out", store.dropped)
	}
	r.faults += store.applied
}

// losing is a store whose replies the proxy drops at times, after the server has sent them. It counts the dropped replies of
// swaps that the server had applied, by reading through a connection without the proxy.
type losing struct {
	durable.Store
	past    durable.Store // the same store, without the proxy
	proxy   *proxy.Proxy
	lose    func() bool
	applied int
	dropped int
}

func (l *losing) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	if name == "" || !l.lose() {
		return l.Store.Swap(ctx, name, old, state, index)
	}
	l.proxy.Arm()
	version, err := l.Store.Swap(ctx, name, old, state, index)
	if l.proxy.Disarm() {
		l.dropped++
	}
	if err != nil {
		if _, now, loadErr := l.past.Load(ctx, name); loadErr == nil && now != old {
			l.applied++
		}
	}
	return version, err
}

// restarted: the server crashes while several workers use it. One keeps a lease to the end, so every restart interrupts work.
func restarted(r *round) {
	domains := append([]string{"D", "E"}, abc...)
	r.offer(12, domains...)
	keeps := &Entry{Domain: "E", Offset: r.arrived["E"][0]}
	var workers [3]*process
	for i := range workers {
		workers[i] = r.start(order{PauseAt: keeps})
	}
	for _, done := range []int{1 + r.rnd.IntN(15), 16 + r.rnd.IntN(30)} { // of 48 in the other domains
		for until := time.Now().Add(patience); r.heard("done") < done; time.Sleep(time.Millisecond) { // workers may be paused
			if time.Now().After(until) {
				r.Fatalf("%d offsets were carried out in %v, want %d", r.heard("done"), patience, done)
			}
		}
		if err := r.server.Restart(r.Context()); err != nil {
			r.Fatal(err)
		}
		r.faults++
	}
	for _, p := range workers {
		_ = p.Tell("go")
	}
	for _, p := range workers {
		r.ends(p)
	}
}

// storm: workers are killed and paused at random, and new ones take over from dead and living ones, until all offsets are
// handled.
func storm(r *round) {
	r.offer(10, abc...)
	living := []*process{r.start(order{}), r.start(order{})}
	for range 6 {
		i := r.rnd.IntN(len(living))
		p := living[i]
		for range r.rnd.IntN(4) {
			if _, ok := p.until("holding"); !ok {
				break
			}
		}
		r.faults++
		if r.rnd.IntN(2) == 0 {
			p.kill()
			living[i] = r.start(order{TakeOver: true})
			continue
		}
		p.Stop()
		living = append(living, r.start(order{TakeOver: true}))
		living[len(living)-1].until("holding")
		p.Wake()
	}
	// A killed worker may have held a lease that no other worker looks for any more.
	living = append(living, r.start(order{TakeOver: true}))
	var group sync.WaitGroup
	for _, p := range living {
		group.Go(func() { r.ends(p) })
	}
	group.Wait()
}

// ends waits for a worker to end by itself without an error.
func (r *round) ends(p *process) {
	r.Helper()
	p.drain()
	if p.ended != nil {
		r.Errorf("a worker: %v", p.ended)
	}
}
