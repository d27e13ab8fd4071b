// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Processor time, where the kernel accounts for it.

package monitor

import (
	"syscall"
	"time"
)

// processorTime returns the processor time of all threads of this process, user and kernel mode, since its start.
func processorTime() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
