// SPDX-License-Identifier: Apache-2.0

// Package episode reports a failure that lasts: when it begins, and then once a minute, however often it is tried again.
package episode

import (
	"sync"
	"time"
)

// Episode is what fails over and over, until it works. The zero value is one in which nothing has failed. It is safe for
// concurrent use.
type Episode struct {
	mu   sync.Mutex // guards told; nothing foreign runs under it
	told time.Time  // when report was called last; zero: nothing fails
}

// Tell calls report with err, unless it did so less than a minute ago. A nil err ends the episode.
func (e *Episode) Tell(report func(error), err error) {
	if e.due(err) {
		report(err)
	}
}

// Lasts reports whether something fails.
func (e *Episode) Lasts() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.told.IsZero()
}

func (e *Episode) due(err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		e.told = time.Time{}
		return false
	case !e.told.IsZero() && time.Since(e.told) < time.Minute:
		return false
	}
	e.told = time.Now()
	return true
}
