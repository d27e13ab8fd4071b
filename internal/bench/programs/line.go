// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"time"
)

// A line is a thin connection: what is read over it comes in pieces of 8 KiB and takes three seconds, six times README's Timeout.
// It pauses after half of the bytes.
type line struct {
	io.Reader
	size, read int
	pause      time.Duration
}

// A way is how a body goes over a line.
type way struct {
	name  string
	pause time.Duration
}

// ways are the ways of long bodies. The pause is longer than the Grace of wardenhttp, 10 s.
func ways() []way { return []way{{"3 s", 0}, {"3 s and a pause of 12 s", 12 * time.Second}} }

func (w way) over(r io.Reader, size int) io.Reader { return &line{r, size, 0, w.pause} }

func (l *line) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p[:min(len(p), 8<<10)])
	time.Sleep(3 * time.Second * time.Duration(n) / time.Duration(l.size))
	if l.read += n; l.read > l.size/2 {
		time.Sleep(l.pause)
		l.pause = 0
	}
	return n, err
}
