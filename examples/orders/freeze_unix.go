//go:build unix

// A frozen process keeps its connection and its belief that it owns its partitions, like one stopped by a debugger.

package main

import "syscall"

const freezes = true

func (f *fleet) freeze(number int) error {
	return f.replicas[number-1].cmd.Process.Signal(syscall.SIGSTOP)
}
func (f *fleet) thaw(number int) error {
	return f.replicas[number-1].cmd.Process.Signal(syscall.SIGCONT)
}
