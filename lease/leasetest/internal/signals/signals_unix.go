//go:build unix

// Package signals is how a process is held and killed.
package signals

import (
	"os"
	"syscall"
)

// Possible says whether processes can be stopped and killed here.
const Possible = true

// Stop has p stand still, as it is, until Wake. One that has ended stays so.
func Stop(p *os.Process) { _ = p.Signal(syscall.SIGSTOP) }

// Wake lets p go on.
func Wake(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }

// Die ends this process so that nothing of it runs any more.
func Die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
