// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Stopping and killing by signals.

package child

import (
	"os"
	"syscall"
)

// Possible reports whether processes can be stopped and killed here.
const Possible = true

// Stop suspends the process until Wake. It has no effect on one that has ended.
func (p *Process) Stop() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }

// Wake resumes the process.
func (p *Process) Wake() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// Die ends this process immediately, without deferred calls.
func Die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
