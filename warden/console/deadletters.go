// Dead letters, read from their store through a function. The store may be remote, so a page waits for a limited time, one
// call runs at a time, and pages share its result.

package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// DeadLetters is the state of a dead-letter queue.
type DeadLetters struct {
	Waiting int          // letters, including parked ones
	Parked  int          // letters that a replay of all skips
	Oldest  time.Time    // when the oldest waiting letter was given up; zero: none
	Letters []DeadLetter // some of the letters, in the store's order; the first 100 are shown
}

// DeadLetter is one record that was given up. Its payload is not shown.
type DeadLetter struct {
	ID       string // as the operator types it
	Key      string
	At       time.Time // when it was given up
	Attempts int       // 0: unknown
	Failure  string    // the last failure; truncated to 500 bytes
	Parked   bool
	Note     string // why it is parked
}

const (
	mostLetters    = 100
	longestFailure = 500
	lettersAge     = 5 * time.Second // how old an answer may be
	lettersWait    = 5 * time.Second // for an answer
)

// desk caches the dead letters.
type desk struct {
	mu    sync.Mutex    // guards all below; nothing foreign runs under it
	asked chan struct{} // closed when the question that is out has its answer; nil: none is out
	at    time.Time     // of now
	now   lettersNow
}

// lettersNow is the content of dead-letters.json.
type lettersNow struct {
	At      when         `json:"at"`
	Trouble string       `json:"trouble"` // why the state is unknown; "": it is known
	Waiting int          `json:"waiting"`
	Parked  int          `json:"parked"`
	Oldest  *when        `json:"oldest"`
	Letters []letterJSON `json:"letters"`
}

type letterJSON struct {
	ID       string `json:"id"`
	Key      string `json:"key"`
	At       when   `json:"at"`
	Attempts int    `json:"attempts"`
	Failure  string `json:"failure"`
	Parked   bool   `json:"parked"`
	Note     string `json:"note"`
}

// letters serves dead-letters.json; null without Config.DeadLetters.
func (c *Console) letters(w http.ResponseWriter, r *http.Request) {
	var answer any
	if c.cfg.DeadLetters != nil {
		answer = c.askDesk(r.Context())
	}
	body, err := json.Marshal(answer)
	if err != nil {
		writeProblem(w, http.StatusInternalServerError, "not_encodable", err.Error())
		return
	}
	serve(w, "application/json", append(body, '\n'))
}

// askDesk returns a recent result, or says that there is none. While one call hangs, no other is made.
func (c *Console) askDesk(ctx context.Context) lettersNow {
	d := &c.desk
	d.mu.Lock()
	if d.asked == nil && time.Since(d.at) < lettersAge {
		defer d.mu.Unlock()
		return d.now
	}
	if d.asked == nil {
		d.asked = make(chan struct{})
		go c.question(d.asked)
	}
	asked := d.asked
	d.mu.Unlock()
	timer := time.NewTimer(lettersWait)
	defer timer.Stop()
	select {
	case <-asked:
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.now
	case <-timer.C:
	case <-ctx.Done():
	}
	return lettersNow{At: when{time.Now()}, Trouble: "Config.DeadLetters does not answer", Letters: []letterJSON{}}
}

// question calls Config.DeadLetters, which may hang, panic, or return too much.
func (c *Console) question(asked chan struct{}) {
	var said DeadLetters
	err := errors.New("Config.DeadLetters panicked or called runtime.Goexit")
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Config.DeadLetters panicked: %v", p)
		}
		now := lettersOf(said, err)
		c.desk.mu.Lock()
		c.desk.now, c.desk.at, c.desk.asked = now, now.At.Time, nil
		c.desk.mu.Unlock()
		close(asked)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), lettersWait)
	defer cancel()
	said, err = c.cfg.DeadLetters(ctx)
}

func lettersOf(said DeadLetters, err error) lettersNow {
	now := lettersNow{At: when{time.Now()}, Waiting: said.Waiting, Parked: said.Parked, Letters: []letterJSON{}}
	if err != nil {
		return lettersNow{At: now.At, Trouble: clip(err.Error(), longestFailure), Letters: now.Letters}
	}
	if !said.Oldest.IsZero() {
		now.Oldest = &when{said.Oldest}
	}
	for _, l := range said.Letters[:min(len(said.Letters), mostLetters)] {
		now.Letters = append(now.Letters, letterJSON{
			ID: clip(l.ID, longestName), Key: clip(l.Key, longestName), At: when{l.At}, Attempts: l.Attempts,
			Failure: clip(l.Failure, longestFailure), Parked: l.Parked, Note: clip(l.Note, longestFailure),
		})
	}
	return now
}
