// SPDX-License-Identifier: Apache-2.0

// A member in a process of its own: how the test binary becomes one, and the parent's side of it.

package ownertest

import (
	"cmp"
	"context"
	"errors"
	"net/rpc"
	"os"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/child"
)

const processVariable = "STOPBANK_OWNERTEST_MEMBER"

// stdio is a process's connection to its parent.
type stdio struct{ *os.File } // standard input

func (stdio) Write(b []byte) (int, error) { return os.Stdout.Write(b) }

// Child turns this process into a member if Torture started it as one, and does not return then. Call it first in TestMain. join
// makes a member of the group that Group.Process describes; it may wait for the server.
func Child(join func(process string) (dispatch.Ownership, error)) {
	text := os.Getenv(processVariable)
	if text == "" {
		return
	}
	parent := rpc.NewClient(stdio{os.Stdin})
	ask := func(c Call) (say string) {
		if parent.Call("Parent.Ask", c, &say) != nil {
			os.Exit(1) // the parent is gone
		}
		return say
	}
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		ask(Call{What: "stays"})
		leave()
	}()
	o, err := join(text)
	if err == nil {
		err = consume(ctx, o, ask, child.Die)
	}
	if err != nil {
		ask(Call{What: "over", Text: err.Error()})
	}
	os.Exit(0)
}

// parent answers the calls of a process.
type parent struct {
	*child.Process
	w     *torture
	h     *hand
	stay  context.Context // until the process is to leave, or has ended
	leave context.CancelFunc
}

// Read ends the call that says how long the process stays, when there is no more to read.
func (p *parent) Read(b []byte) (int, error) {
	n, err := p.Process.Read(b)
	if err != nil {
		p.leave()
	}
	return n, err
}

// Ask is the one method that a process calls: the account's answer.
func (p *parent) Ask(c Call, say *string) error {
	switch c.What {
	case "stays":
		<-p.stay.Done()
	case "over":
		p.h.err = errors.New(c.Text)
	}
	if *say = p.w.answer(p.h, c); *say == sayDie {
		p.w.killed(p.h)
	}
	return nil
}

// process starts a member in a process of its own.
func (w *torture) process() *hand {
	started, err := child.Start(context.Background(), processVariable, w.group.Process)
	if err != nil {
		w.Fatal(err)
	}
	p := &parent{Process: started, w: w}
	p.stay, p.leave = context.WithCancel(context.Background())
	p.h = &hand{cut: p.Stop, mend: p.Wake, leave: p.leave, kill: p.Kill, ended: make(chan struct{}), holds: map[string]int{}}
	w.enlist(p.h, "process")
	server := rpc.NewServer()
	if err := server.RegisterName("Parent", p); err != nil {
		w.Fatal(err)
	}
	go func() {
		defer close(p.h.ended)
		server.ServeConn(p)
		err := p.Wait()
		p.h.err = cmp.Or(p.h.err, err)
	}()
	return p.h
}
