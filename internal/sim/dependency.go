// A dependency: so many servers, and a queue in front of them that nobody sees from outside.

package sim

import (
	"sync"
	"time"
)

// dependency serves calls first come first served. The zero value has no servers and unlimited capacity.
type dependency struct {
	servers int

	mu    sync.Mutex // guards all below
	busy  int
	queue []chan struct{}
	slow  float64 // by how much calls take longer than usual; 0: as usual
}

// call takes d at one of the servers.
func (s *dependency) call(d time.Duration) {
	if s.servers > 0 {
		s.enter()
		defer s.leave()
	}
	s.mu.Lock()
	if s.slow > 0 {
		d = time.Duration(float64(d) * s.slow)
	}
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *dependency) enter() {
	s.mu.Lock()
	if s.busy < s.servers {
		s.busy++
		s.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	s.queue = append(s.queue, turn)
	s.mu.Unlock()
	<-turn
}

func (s *dependency) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		close(s.queue[0])
		s.queue = s.queue[1:]
		return
	}
	s.busy--
}

func (s *dependency) slowBy(factor float64) {
	s.mu.Lock()
	s.slow = factor
	s.mu.Unlock()
}
