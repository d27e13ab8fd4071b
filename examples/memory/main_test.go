// The example, smaller: what runs is what fits, and the limit says why.

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNoMoreRunThanFit(t *testing.T) {
	var out bytes.Buffer
	s := scene{limit: 128 << 20, held: 10e6, takes: 500 * time.Millisecond, rate: 60, patience: 2 * time.Second, lasts: 6 * time.Second}
	o, err := s.play(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	const fit = 128 << 20 / 10_000_000
	said := strings.Contains(out.String(), "MB a task") || strings.Contains(out.String(), "starved") // by others, fewer run than fit
	if !said || o.answered.Load() == 0 || o.most.Load() > 2*fit {
		t.Errorf("%d ran at once, of which %d fit:\n%s", o.most.Load(), fit, out.String())
	}
}
