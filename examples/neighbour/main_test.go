// The example, shorter, with the test's own program for neighbours.

package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-busy") {
		beBusy(os.Stdin)
		return
	}
	goleak.VerifyTestMain(m)
}

func TestNeighboursComeAndGo(t *testing.T) {
	var out bytes.Buffer
	s := scene{
		rate: 50, computes: time.Millisecond, waits: time.Millisecond,
		come: time.Second, leave: 3 * time.Second, lasts: 5 * time.Second,
	}
	answered, err := s.play(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), " answered/s "); answered == 0 || lines < 2 {
		t.Errorf("%d answered, %d lines:\n%s", answered, lines, out.String())
	}
}
