package main

// The program's output, in virtual time, and the removal of idle keys' limiters.

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := send(&out); err != nil {
			t.Fatal(err)
		}
		const want = `small: webhook 1 sent in second 0
small: webhook 2 sent in second 1
small: webhook 3 sent in second 2
big: 126 of 10000 webhooks sent
`
		if out.String() != want {
			t.Errorf("%s, want\n%s", out.String(), want)
		}
	})
}

func TestIdleKeysAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &perKey{limit: 1, burst: 3}
		for i := range 100_000 {
			k.Of(fmt.Sprint(i)).Take(time.Now())
			time.Sleep(10 * time.Millisecond)
			if len(k.of) > 300 {
				t.Fatalf("%d limiters, although 100 keys a second are used and a limiter fills in 3 s", len(k.of))
			}
		}
		busy := k.Of("busy")
		for range 3 {
			busy.Take(time.Now())
		}
		for i := range 1000 {
			k.Of(fmt.Sprint("x", i)).Take(time.Now())
		}
		if k.Of("busy").Take(time.Now()) {
			t.Error("a limiter that was not full was removed")
		}
	})
}
