// SPDX-License-Identifier: Apache-2.0

//go:build !unix

// Processor time, where it is not known.

package monitor

import "time"

func processorTime() (time.Duration, bool) { return 0, false }
