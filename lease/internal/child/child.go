// SPDX-License-Identifier: Apache-2.0

// Package child runs the test binary once more, as a process that its test can stop, resume and kill.
package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
)

// Process is such a process, as its parent sees it.
type Process struct {
	cmd *exec.Cmd
	out io.Reader
	mu  sync.Mutex // guards writing to in
	in  io.WriteCloser
}

// Start starts a process with variable=value in its environment. It is killed when ctx is done.
func Start(ctx context.Context, variable, value string) (*Process, error) {
	p := &Process{cmd: exec.CommandContext(ctx, os.Args[0])}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), variable+"="+value), os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.out = out
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	return p, err
}

// Listen calls hear with each line that the process writes, waits for its end and returns how it ended. Call it once.
func (p *Process) Listen(hear func(line []byte)) error {
	lines(p.out, hear)
	return p.cmd.Wait()
}

// Tell writes v to the process as a line of JSON. An error means that it has ended.
func (p *Process) Tell(v any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return write(p.in, v)
}

// Kill ends the process at once, like the kernel's out-of-memory killer. It has no effect on one that has ended.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Leash calls hear with each line that this process's parent tells, and ends this process when the parent is gone.
func Leash(hear func(line []byte)) {
	lines(os.Stdin, hear)
	os.Exit(1) //nolint:forbidigo // a process that a test has started ends with that test
}

var speaking sync.Mutex //nolint:gochecknoglobals // a process has one standard output; guards writing to it

// Say writes v to this process's parent as a line of JSON.
func Say(v any) {
	speaking.Lock()
	defer speaking.Unlock()
	_ = write(os.Stdout, v) // nobody reads if the parent is gone
}

func write(to io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = to.Write(append(line, '\n'))
	}
	return err
}

func lines(from io.Reader, hear func(line []byte)) {
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		hear(bytes.TrimSuffix(line, []byte("\n")))
	}
}
