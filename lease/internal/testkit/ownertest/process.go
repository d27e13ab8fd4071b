// SPDX-License-Identifier: Apache-2.0

// A member in a process of its own: how the test binary becomes one, and the parent's side of it.

package ownertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/child"
)

const processVariable = "STOPBANK_OWNERTEST_MEMBER"

// reply is the parent's message to a process.
type reply struct {
	ID  int64 // of the call; 0: leave
	Say string
}

// Child turns this process into a member if Torture started it as one, and does not return then. Call it first in TestMain. join
// makes a member of the group that Group.Process describes; it may wait for the server.
func Child(join func(process string) (dispatch.Ownership, error)) {
	text := os.Getenv(processVariable)
	if text == "" {
		return
	}
	ctx, leave := context.WithCancel(context.Background())
	var mu sync.Mutex // guards the last call and the answers
	var last int64
	answers := map[int64]chan string{}
	go child.Leash(func(line []byte) {
		var r reply
		if json.Unmarshal(line, &r) != nil || r.ID == 0 {
			leave()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		answers[r.ID] <- r.Say
		delete(answers, r.ID)
	})
	ask := func(c call) string {
		answer := make(chan string, 1)
		mu.Lock()
		last++
		c.ID = last
		answers[c.ID] = answer
		mu.Unlock()
		child.Say(c)
		return <-answer
	}
	o, err := join(text)
	if err == nil {
		err = consume(ctx, o, ask, child.Die)
	}
	if err != nil {
		ask(call{What: "over", Text: err.Error()})
	}
	os.Exit(0)
}

// process starts a member in a process of its own.
func (w *torture) process() *hand {
	p, err := child.Start(context.Background(), processVariable, w.group.Process)
	if err != nil {
		w.Fatal(err)
	}
	tell := func(r reply) { _ = p.Tell(r) } // the process may be dead
	h := &hand{
		cut: p.Stop, mend: p.Wake, leave: func() { tell(reply{}) }, kill: p.Kill,
		ended: make(chan struct{}), holds: map[string]int{},
	}
	w.enlist(h, "process")
	go func() {
		defer close(h.ended)
		err := p.Listen(func(line []byte) {
			var c call
			switch {
			case json.Unmarshal(line, &c) != nil:
				h.err = fmt.Errorf("ownertest: a process says %q", line)
				return
			case c.What == "over":
				h.err = errors.New(c.Text)
			}
			say := w.answer(h, c)
			if say == sayDie {
				w.killed(h)
			}
			tell(reply{c.ID, say})
		})
		if h.err == nil {
			h.err = err
		}
	}()
	return h
}
