package ownertest

// This file is a member in a process of its own: how the test binary becomes one, and the parent's side of it.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasetest/internal/signals"
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
	var mu sync.Mutex // guards the last call, the answers, and output lines
	var last int64
	answers := map[int64]chan string{}
	go func() { // the member ends with its parent: the pipe closes
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			var r reply
			if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == 0 {
				leave()
				continue
			}
			mu.Lock()
			answers[r.ID] <- r.Say
			delete(answers, r.ID)
			mu.Unlock()
		}
		os.Exit(1)
	}()
	ask := func(c call) string {
		answer := make(chan string, 1)
		mu.Lock()
		last++
		c.ID = last
		answers[c.ID] = answer
		line, _ := json.Marshal(c) // a call can always be marshalled
		_, _ = os.Stdout.Write(append(line, '\n'))
		mu.Unlock()
		return <-answer
	}
	o, err := join(text)
	if err == nil {
		err = consume(ctx, o, ask, signals.Die)
	}
	if err != nil {
		ask(call{What: "over", Text: err.Error()})
	}
	os.Exit(0)
}

// process starts a member in a process of its own.
func (w *torture) process() *hand {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), processVariable+"="+w.group.Process), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	var mu sync.Mutex // guards input lines
	tell := func(r reply) {
		line, _ := json.Marshal(r) // a reply can always be marshalled
		mu.Lock()
		defer mu.Unlock()
		_, _ = in.Write(append(line, '\n')) // the process may be dead
	}
	h := &hand{
		cut: func() { signals.Stop(cmd.Process) }, mend: func() { signals.Wake(cmd.Process) },
		leave: func() { tell(reply{}) }, kill: func() { _ = cmd.Process.Kill() },
		ended: make(chan struct{}), holds: map[string]int{},
	}
	w.enlist(h, "process")
	go func() {
		defer close(h.ended)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			var c call
			switch {
			case err != nil:
				_, _ = io.Copy(io.Discard, out)
				if err := cmd.Wait(); err != nil && h.err == nil {
					h.err = err
				}
				return
			case json.Unmarshal(line, &c) != nil:
				h.err = fmt.Errorf("ownertest: a process says %q", line)
				continue
			case c.What == "over":
				h.err = errors.New(c.Text)
			}
			say := w.answer(h, c)
			if say == sayDie {
				w.killed(h)
			}
			tell(reply{c.ID, say})
		}
	}()
	return h
}
