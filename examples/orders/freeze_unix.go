//go:build unix

// A process that is frozen keeps its connection and what it believes, as one does that the kernel swaps out or a debugger stops.

package main

import "syscall"

func (f *fleet) freeze(number int) error {
	return f.replicas[number-1].cmd.Process.Signal(syscall.SIGSTOP)
}
func (f *fleet) thaw(number int) error {
	return f.replicas[number-1].cmd.Process.Signal(syscall.SIGCONT)
}
