//go:build !unix

// This file stands for signals where there are none; Run does not get this far there.

package faults

const signals = false

func (*process) stop() {}
func (*process) wake() {}
func die()             {}
