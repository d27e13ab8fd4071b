package faults

// This file is the worker process: how the test binary becomes one, and what it says.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// order is what a worker is told to do, in its environment.
type order struct {
	Address, Ledger string
	MaxRetries      int
	TakeOver        bool   // begin by reclaiming every lease
	Alone           bool   // nobody else is at work
	GiveBack        bool   // release the first lease, and end
	HangAfter       int    // stand still after this many swaps, before the ledger hears of the last one; 0: never
	PauseAt         *Entry // stand still with the lease on this, until told to go on
	Poison          *Entry // die when handling this
}

const orderVariable = "STOPBANK_FAULTS_ORDER"

// note is a line that a worker says.
type note struct {
	What   string // holding, done, refused, fenced, reclaimed, released, gave up, swapped, violation, finished
	Domain string
	Offset int64
	Token  lease.Token
	Text   string
}

// Child turns this process into a worker if Run started it as one, and does not return then. TestMain calls it before anything else.
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
	go func() { // whoever started it has it on a leash: an open pipe
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			gone <- struct{}{}
		}
		os.Exit(1)
	}()
	var mu sync.Mutex // guards lines on their way out
	say := func(n note) {
		mu.Lock()
		defer mu.Unlock()
		line, _ := json.Marshal(n) // a note can be marshalled
		_, _ = os.Stdout.Write(append(line, '\n'))
	}
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

// hanging stands still once a swap has been applied: what comes next is for whoever kills the process.
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

// process is a worker seen from outside.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	leash io.WriteCloser
	notes chan note // closed at its end
	ended error     // of Wait; set when notes is closed
}

// start starts a worker. All that it says goes to the round's journal as well.
func (r *round) start(o order) *process {
	r.Helper()
	o.Address, o.Ledger, o.MaxRetries = r.server.Address, r.ledger, r.maxRetries
	text, err := json.Marshal(o)
	if err != nil {
		r.Fatal(err)
	}
	cmd := exec.CommandContext(r.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), orderVariable+"="+string(text)), os.Stderr
	leash, err := cmd.StdinPipe()
	if err != nil {
		r.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	p := &process{t: r.TB, cmd: cmd, leash: leash, notes: make(chan note, 1<<14)}
	go func() {
		defer close(p.notes)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var n note
			if json.Unmarshal(lines.Bytes(), &n) != nil {
				n = note{What: "violation", Text: "a worker says " + lines.Text()}
			}
			r.hear(n)
			p.notes <- n
		}
		p.ended = cmd.Wait()
	}()
	return p
}

// until waits until the worker says what, or ends; ok tells which.
func (p *process) until(what string) (n note, ok bool) {
	for n := range p.notes {
		if n.What == what {
			return n, true
		}
	}
	return note{}, false
}

// tell lets a worker that stands still go on.
func (p *process) tell() {
	if _, err := io.WriteString(p.leash, "go\n"); err != nil {
		p.t.Errorf("a worker that was to go on: %v", err)
	}
}

// kill ends a worker as the kernel does when memory runs out: at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error: it has ended by itself
	p.drain()
}

func (p *process) drain() {
	for range p.notes {
	}
}
