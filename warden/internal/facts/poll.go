// Package facts has every metric of a service under a warden once, with its name, its unit and where it is read, for the adapters that
// export them: wardenprom and wardenotel. This file is how sources are asked, and what one that fails may cost.
package facts

import (
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Put takes the value of a family, with the values of its labels.
type Put func(name string, value float64, labels ...string)

// Value is what a source said.
type Value struct {
	Name   string
	Value  float64
	Labels []string
}

// Source is one thing that is shown. Only one goroutine at a time asks it.
type Source struct {
	// Label is what it is and its name, such as "gate/login".
	Label string
	// Read says all that there is to say now. An error means that it cannot.
	Read func(Put) error

	busy     atomic.Bool
	failures atomic.Uint64
}

// Poll asks all sources at the same time, each in a goroutine of its own, and yields what they say within the time given; nil
// for one that panicked, failed, or was late. One that has not come back from the poll before is not asked again. The values
// end with the number of the source's failures.
func Poll(sources []*Source, within time.Duration) iter.Seq2[*Source, []Value] {
	return func(yield func(*Source, []Value) bool) {
		timer := time.NewTimer(within)
		defer timer.Stop()
		answers := make([]chan []Value, len(sources))
		for i, s := range sources {
			answers[i] = s.ask()
		}
		late := false
		for i, s := range sources {
			var values []Value
			if !late {
				select {
				case values = <-answers[i]:
				case <-timer.C:
					late = true
				}
			}
			if late {
				select {
				case values = <-answers[i]:
				default:
				}
			}
			if values == nil {
				s.failures.Add(1)
			}
			if !yield(s, append(values, Value{Failures, float64(s.failures.Load()), []string{s.Label}})) {
				return
			}
		}
	}
}

// ask has a goroutine of its own ask the source, unless the one before has not come back. What is received is nil if the
// source failed.
func (s *Source) ask() chan []Value {
	answer := make(chan []Value, 1)
	if !s.busy.CompareAndSwap(false, true) {
		answer <- nil
		return answer
	}
	go func() {
		var all []Value
		whole := false
		defer func() {
			if !whole {
				_ = recover() // or the source has ended its goroutine
				all = nil
			}
			s.busy.Store(false)
			answer <- all
		}()
		said := []Value{}
		seen := map[string]bool{}
		err := s.Read(func(name string, value float64, labels ...string) {
			for i := range labels {
				labels[i] = Clean(labels[i])
			}
			if key := fmt.Sprintf("%s%q", name, labels); !seen[key] { // two alike would spoil everything that is shown
				seen[key] = true
				said = append(said, Value{name, value, labels})
			}
		})
		if whole = true; err == nil {
			all = said
		}
	}()
	return answer
}

const longestLabel = 128

// Clean is s as a label can have it: valid UTF-8, not long. Line breaks and quotes are the business of whoever writes it
// down.
func Clean(s string) string {
	if len(s) > longestLabel {
		s = s[:longestLabel]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Valid is whether a name that somebody configured can be a label as it is.
func Valid(name string) bool {
	return name != "" && len(name) <= longestLabel && utf8.ValidString(name)
}

// ValidNames is what Valid allows.
const ValidNames = "a name of valid UTF-8, 1 to 128 bytes"
