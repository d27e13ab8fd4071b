//go:build unix

// Package signals stops and kills processes.
package signals

import (
	"os"
	"syscall"
)

// Possible reports whether processes can be stopped and killed here.
const Possible = true

// Stop suspends p until Wake. It has no effect on a process that has ended.
func Stop(p *os.Process) { _ = p.Signal(syscall.SIGSTOP) }

// Wake resumes p.
func Wake(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }

// Die ends this process immediately, without deferred calls.
func Die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
