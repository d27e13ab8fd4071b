// SPDX-License-Identifier: Apache-2.0

// Package child runs the test binary once more, as a process that its test can stop, resume and kill.
package child

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
)

// Process is such a process, as its parent sees it: what one of them writes to its standard streams, the other one reads.
type Process struct {
	io.Reader
	io.WriteCloser
	cmd *exec.Cmd
}

// Start starts a process with variable=value in its environment. It is killed when ctx is done.
func Start(ctx context.Context, variable, value string) (*Process, error) {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), variable+"="+value), os.Stderr
	out, err1 := cmd.StdoutPipe()
	in, err2 := cmd.StdinPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return &Process{out, in, cmd}, cmd.Start()
}

// Wait waits for the end of the process, all of whose output is read, and returns how it ended.
func (p *Process) Wait() error { return p.cmd.Wait() }

// Kill ends the process at once, like the kernel's out-of-memory killer. It has no effect on one that has ended.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }
