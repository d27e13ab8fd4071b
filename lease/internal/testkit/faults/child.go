// SPDX-License-Identifier: Apache-2.0

// The worker process: how the test binary becomes one, and its output.

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/child"
)

// order configures a worker; it is passed in the environment.
type order struct {
	Address, Ledger string
	MaxRetries      int
	TakeOver        bool   // begin by reclaiming every lease
	Alone           bool   // no other worker is running
	GiveBack        bool   // release the first lease, then end
	HangAfter       int    // stop after this many swaps, before the ledger gets the reply to the last one; 0: never
	PauseAt         *Entry // pause with the lease on this record until resumed
	Poison          *Entry // die when handling this record
}

const orderVariable = "STOPBANK_FAULTS_ORDER"

// note is a line of a worker's output.
type note struct {
	What   string // holding, done, refused, fenced, reclaimed, released, gave up, swapped, violation, finished
	Domain string
	Offset int64
	Token  lease.Token
	Text   string
}

// Child turns this process into a worker if Run started it as one, and does not return then. Call it first in TestMain.
func Child(open Open) {
	text := os.Getenv(orderVariable)
	if text == "" {
		return
	}
	os.Exit(work(open, text))
}

func work(open Open, text string) int {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	gone := make(chan struct{}, 1)
	go child.Leash(func([]byte) { gone <- struct{}{} })
	say := func(n note) { child.Say(n) }
	ctx := context.Background()
	side, err := open(ctx, o.Address, o.Ledger)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer side.Close()
	if o.HangAfter > 0 {
		side.Store = &hanging{Store: side.Store, left: o.HangAfter, say: say}
	}
	w := worker{order: o, side: side, say: say, resume: gone}
	if err := w.run(ctx); err != nil {
		say(note{What: "violation", Text: err.Error()})
		return 1
	}
	say(note{What: "finished"})
	return 0
}

// hanging stops a worker once a swap has been applied and before the reply; the test then kills the process.
type hanging struct {
	durable.Store
	mu   sync.Mutex // guards left
	left int
	say  func(note)
}

func (h *hanging) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	version, err := h.Store.Swap(ctx, name, old, state, index)
	if err == nil && name != "" {
		h.mu.Lock()
		h.left--
		last := h.left == 0
		h.mu.Unlock()
		if last {
			h.say(note{What: "swapped", Domain: name})
			select {}
		}
	}
	return version, err
}

// process is a worker as the test sees it.
type process struct {
	*child.Process
	notes chan note // closed at the process's end
	ended error     // how it ended; set when notes is closed
}

// start starts a worker. Its output also goes to the round's journal.
func (r *round) start(o order) *process {
	r.Helper()
	o.Address, o.Ledger, o.MaxRetries = r.server.Address, r.ledger, r.maxRetries
	text, err := json.Marshal(o)
	if err != nil {
		r.Fatal(err)
	}
	c, err := child.Start(r.Context(), orderVariable, string(text))
	if err != nil {
		r.Fatal(err)
	}
	p := &process{Process: c, notes: make(chan note, 1<<14)}
	go func() {
		defer close(p.notes)
		p.ended = c.Listen(func(line []byte) {
			var n note
			if json.Unmarshal(line, &n) != nil {
				n = note{What: "violation", Text: "a worker says " + string(line)}
			}
			r.hear(n)
			p.notes <- n
		})
	}()
	return p
}

// until waits for a note of this kind; ok is false if the worker ends first.
func (p *process) until(what string) (n note, ok bool) {
	for n := range p.notes {
		if n.What == what {
			return n, true
		}
	}
	return note{}, false
}

// kill ends a worker immediately.
func (p *process) kill() {
	p.Kill()
	p.drain()
}

func (p *process) drain() {
	for range p.notes {
	}
}
