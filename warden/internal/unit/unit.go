// SPDX-License-Identifier: Apache-2.0

// Package unit finds durations that were configured without a unit: a Timeout of 500 is 500 nanoseconds.
package unit

import (
	"fmt"
	"strings"
	"time"
)

// The least bounds that somebody can mean.
const (
	Network = time.Millisecond      // of a call to another process
	Process = 10 * time.Microsecond // of a function: to wake a goroutine takes about as long
)

// Allowed returns "" if d is 0, or from least to most (0: any more), and otherwise the text that says so, with what was probably
// meant. zero is the meaning of 0.
func Allowed(d, least, most time.Duration, zero string) string {
	if d == 0 || d >= least && (most == 0 || d <= most) {
		return ""
	}
	s := fmt.Sprintf("%s, or %s or more", zero, least)
	if most > 0 {
		s = fmt.Sprintf("%s, or %s to %s", zero, least, strings.TrimSuffix(strings.TrimSuffix(most.String(), "0s"), "0m"))
	}
	if d > 0 && d < Process {
		s += fmt.Sprintf("; did you mean %s?", time.Duration(d.Nanoseconds())*time.Millisecond)
	}
	return s
}
