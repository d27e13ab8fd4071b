//go:build unix

// This file is how a process is held and killed.

package faults

import (
	"os"
	"syscall"
)

const signals = true

func (p *process) stop() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) wake() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// die ends this process so that nothing of it runs any more.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
