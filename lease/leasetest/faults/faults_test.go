package faults

// This file lets the faults loose on a reference engine, sound and broken: what is broken has to be found.

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestMain(m *testing.M) {
	Child(dial)
	os.Exit(m.Run())
}

func TestTheReferencePasses(t *testing.T) { Run(t, serve(t, "").server("")) }

// witness is a testing.TB that remembers a failure instead of passing it on.
type witness struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	said   []string
}

func (w *witness) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed, w.said = true, append(w.said, text)
}

func (w *witness) Helper()                           {}
func (w *witness) Logf(string, ...any)               {}
func (w *witness) Error(args ...any)                 { w.note(fmt.Sprint(args...)) }
func (w *witness) Errorf(format string, args ...any) { w.note(fmt.Sprintf(format, args...)) }
func (w *witness) Fatal(args ...any)                 { w.note(fmt.Sprint(args...)); runtime.Goexit() }
func (w *witness) Fatalf(format string, args ...any) {
	w.note(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (w *witness) Failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func TestTheFaultsHaveTeeth(t *testing.T) {
	for fault, kind := range map[string]string{
		"the register takes any token":         "holder stopped, reclaimed, resumed",
		"the last swap wins":                   "many processes race for one domain",
		"a swap is acknowledged and forgotten": "killed between swap and reply",
		"what is held is filed as idle":        "killed between swap and reply",
		"lies: a lost reply means not applied": "reply dropped by the network",
	} {
		t.Run(fault, func(t *testing.T) {
			prefix := ""
			if strings.HasPrefix(fault, "lies:") {
				prefix = "lies:"
			}
			server := serve(t, fault).server(prefix)
			i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == kind })
			for seed := range uint64(8) { // chance may spare it once
				w := &witness{TB: t}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					run(w, server, seed+1, scenarios[i:i+1])
				}()
				<-ended
				if w.Failed() {
					t.Logf("%.300s", strings.Join(w.said, "; "))
					return
				}
			}
			t.Error("not found")
		})
	}
}
