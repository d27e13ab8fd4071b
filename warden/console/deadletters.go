// SPDX-License-Identifier: Apache-2.0

// Dead letters, read from their store through a function. The store may be remote, so a page waits for a limited time, one
// call runs at a time, and pages share its result.

package console

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// DeadLetter is one record that was given up. Its payload is not shown.
type DeadLetter struct {
	ID       string // as operators type it
	Key      string
	At       time.Time // when it was given up
	Attempts int       // 0: unknown
	Failure  string    // the last failure; truncated to 500 bytes
	Parked   bool      // a replay of all letters skips it
	Note     string    // why it is parked
}

const (
	mostLetters    = 100
	longestFailure = 500             // bytes
	lettersMaxAge  = 5 * time.Second // of a result
	lettersTimeout = 5 * time.Second // of a call, and of a page that waits for its result
)

// letterCache keeps the result of the last call.
type letterCache struct {
	mu      sync.Mutex    // guards all below; Config.DeadLetters does not run under it
	pending chan struct{} // closed when the call under way has its result; nil: none is under way
	result  lettersJSON
}

// lettersJSON is the content of dead-letters.json.
type lettersJSON struct {
	At      jsonTime     `json:"at"`
	Trouble string       `json:"trouble"` // why the state is unknown; "": it is known
	Waiting int          `json:"waiting"` // letters, including parked ones
	Parked  int          `json:"parked"`
	Oldest  *jsonTime    `json:"oldest"` // when the oldest was given up; null: there is none
	Letters []letterJSON `json:"letters"`
}

type letterJSON struct {
	ID       string   `json:"id"`
	Key      string   `json:"key"`
	At       jsonTime `json:"at"`
	Attempts int      `json:"attempts"`
	Failure  string   `json:"failure"`
	Parked   bool     `json:"parked"`
	Note     string   `json:"note"`
}

// serveLetters serves dead-letters.json; null without Config.DeadLetters.
func (c *Console) serveLetters(w http.ResponseWriter, r *http.Request) {
	if c.cfg.DeadLetters == nil {
		serveJSON(w, r, nil)
		return
	}
	serveJSON(w, r, c.deadLetters(r.Context()))
}

// deadLetters returns a recent result, or says that there is none. While one call hangs, no other is made.
func (c *Console) deadLetters(ctx context.Context) lettersJSON {
	cache := &c.letters
	cache.mu.Lock()
	if cache.pending == nil && time.Since(cache.result.At.Time) < lettersMaxAge {
		defer cache.mu.Unlock()
		return cache.result
	}
	if cache.pending == nil {
		cache.pending = make(chan struct{})
		go c.readLetters(cache.pending)
	}
	pending := cache.pending
	cache.mu.Unlock()
	timer := time.NewTimer(lettersTimeout)
	defer timer.Stop()
	select {
	case <-pending:
		cache.mu.Lock()
		defer cache.mu.Unlock()
		return cache.result
	case <-timer.C:
	case <-ctx.Done():
	}
	return lettersTrouble("Config.DeadLetters does not answer")
}

// readLetters calls Config.DeadLetters, which may hang or panic.
func (c *Console) readLetters(pending chan struct{}) {
	result := lettersTrouble("Config.DeadLetters panicked or called runtime.Goexit")
	defer func() {
		if p := recover(); p != nil {
			result = lettersTrouble(fmt.Sprintf("Config.DeadLetters panicked: %v", p))
		}
		result.At = jsonTime{time.Now()}
		c.letters.mu.Lock()
		c.letters.result, c.letters.pending = result, nil
		c.letters.mu.Unlock()
		close(pending)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), lettersTimeout)
	defer cancel()
	read := lettersJSON{Letters: []letterJSON{}}
	for l, err := range c.cfg.DeadLetters(ctx) {
		if err == nil {
			err = ctx.Err() // it should have ended by itself
		}
		if err != nil {
			result = lettersTrouble(err.Error())
			return
		}
		read.add(l)
	}
	result = read
}

// lettersTrouble is the result of a call that gave none.
func lettersTrouble(why string) lettersJSON {
	return lettersJSON{At: jsonTime{time.Now()}, Trouble: truncate(why, longestFailure), Letters: []letterJSON{}}
}

func (all *lettersJSON) add(l DeadLetter) {
	all.Waiting++
	if l.Parked {
		all.Parked++
	}
	if !l.At.IsZero() && (all.Oldest == nil || l.At.Before(all.Oldest.Time)) {
		all.Oldest = &jsonTime{l.At}
	}
	if len(all.Letters) < mostLetters {
		all.Letters = append(all.Letters, letterJSON{
			ID: truncate(l.ID, longestName), Key: truncate(l.Key, longestName), At: jsonTime{l.At}, Attempts: l.Attempts,
			Failure: truncate(l.Failure, longestFailure), Parked: l.Parked, Note: truncate(l.Note, longestFailure),
		})
	}
}
