// A model of processors under Go's scheduler: one first-come-first-served run queue with time slices of 10 ms.

package sim

import (
	"sync"
	"time"
)

// slice is how long a goroutine runs before it is preempted, if others are runnable.
const slice = 10 * time.Millisecond

// cpu models processors and the goroutines that wait for one.
type cpu struct {
	mu     sync.Mutex // guards all fields below
	cores  int
	busy   int
	queue  []*ready
	frozen time.Time // until then no goroutine gets a processor: a garbage-collection pause

	used  time.Duration   // processor time since the last sample
	lags  []time.Duration // one in eight of the scheduling delays since the last sample
	seen  int
	begun map[*ready]time.Time // running goroutines and when each started, for used
}

type ready struct {
	since time.Time
	start func() // called once, holding mu
}

func newCPU(cores int) *cpu { return &cpu{cores: cores, begun: map[*ready]time.Time{}} }

// run takes d of processor time and blocks until it is done.
func (c *cpu) run(d time.Duration) {
	for d > 0 {
		me := c.enter()
		step := min(d, slice)
		time.Sleep(step)
		d -= step
		// No other goroutine is runnable: continue on the same processor.
		for d > 0 && c.alone() {
			step = min(d, slice)
			time.Sleep(step)
			d -= step
		}
		c.leave(me)
	}
}

func (c *cpu) alone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) == 0 && c.busy <= c.cores && !time.Now().Before(c.frozen)
}

func (c *cpu) enter() *ready {
	turn := make(chan struct{})
	me := c.ask(func() { close(turn) })
	<-turn
	return me
}

// ask requests a processor without blocking. start is called when one is free, possibly before ask returns.
func (c *cpu) ask(start func()) *ready {
	c.mu.Lock()
	defer c.mu.Unlock()
	me := &ready{time.Now(), start}
	c.queue = append(c.queue, me)
	c.dispatch()
	return me
}

func (c *cpu) leave(me *ready) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	c.used += time.Since(c.begun[me])
	delete(c.begun, me)
	c.dispatch()
}

// dispatch gives free processors to runnable goroutines. The caller holds mu.
func (c *cpu) dispatch() {
	now := time.Now()
	for len(c.queue) > 0 && c.busy < c.cores && !now.Before(c.frozen) {
		next := c.queue[0]
		c.queue = c.queue[1:]
		c.busy++
		c.begun[next] = now
		c.note(now.Sub(next.since))
		next.start()
	}
}

// note records one in eight delays, like Go's runtime. The caller holds mu.
func (c *cpu) note(lag time.Duration) {
	if c.seen++; c.seen%8 == 0 {
		c.lags = append(c.lags, lag)
	}
}

// freeze starts no goroutine for d; running goroutines continue.
func (c *cpu) freeze(d time.Duration) {
	c.mu.Lock()
	c.frozen = time.Now().Add(d)
	c.mu.Unlock()
	time.Sleep(d)
	c.mu.Lock()
	c.dispatch()
	c.mu.Unlock()
}

func (c *cpu) resize(cores int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cores = cores
	c.dispatch()
}
