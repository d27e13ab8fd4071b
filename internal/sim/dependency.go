// A model of a dependency: a fixed number of servers with a queue that is invisible from outside.

package sim

import (
	"sync"
	"time"
)

// dependency serves calls first come, first served. The zero value has unlimited capacity.
type dependency struct {
	servers int

	mu    sync.Mutex // guards all fields below
	busy  int
	queue []func() // each is called once, holding mu
	slow  float64  // factor on the duration of calls; 0: normal
}

// call takes d at one of the servers and blocks until it is done.
func (s *dependency) call(d time.Duration) {
	if s.servers > 0 {
		s.enter()
		defer s.leave()
	}
	time.Sleep(s.takes(d))
}

// takes returns how long a call takes that starts now and normally takes d.
func (s *dependency) takes(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slow > 0 {
		d = time.Duration(float64(d) * s.slow)
	}
	return d
}

func (s *dependency) enter() {
	turn := make(chan struct{})
	s.ask(func() { close(turn) })
	<-turn
}

// ask requests a server without blocking. start is called when one is free, possibly before ask returns.
func (s *dependency) ask(start func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy < s.servers {
		s.busy++
		start()
		return
	}
	s.queue = append(s.queue, start)
}

func (s *dependency) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		next := s.queue[0]
		s.queue = s.queue[1:]
		next()
		return
	}
	s.busy--
}

func (s *dependency) slowBy(factor float64) {
	s.mu.Lock()
	s.slow = factor
	s.mu.Unlock()
}
