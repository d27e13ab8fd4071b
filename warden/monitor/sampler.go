// The sampler: everything that can be observed, read at one instant and compared with the instant before.

package monitor

import (
	"sync"
	"time"
)

// Config says what a [Sampler] samples besides the process itself. The zero value samples that alone.
type Config struct {
	// Recorder, if not nil, feeds Sample.Service. It must come from [NewRecorder] and feed no other Sampler.
	Recorder *Recorder
}

// Sampler takes samples of the process it runs in. Its method may be called by any number of goroutines; they take turns.
// It starts no goroutine.
type Sampler struct {
	mu       sync.Mutex // guards everything below
	last     time.Time
	recorder *Recorder
}

// New returns a Sampler. What its first sample compares with is this instant. The error is an [*InvalidError].
func New(cfg Config) (*Sampler, error) {
	return &Sampler{recorder: cfg.Recorder}, nil
}

// Sample says what there is to say about now and about the time since the sample before.
func (s *Sampler) Sample() Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var out Sample
	out.At = now
	if !s.last.IsZero() {
		out.Gap = max(0, now.Sub(s.last))
	}
	s.last = now
	return out
}
