package main

// What the program prints is part of it, in virtual time. And the limiters of keys that are idle are forgotten.

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
		const want = `small's no. 1 is sent in second 0
small's no. 2 is sent in second 1
small's no. 3 is sent in second 2
big has had 126 of 10000
`
		if out.String() != want {
			t.Errorf("%s, want\n%s", out.String(), want)
		}
	})
}

func TestIdleKeysAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &perKey{limit: 1, burst: 3}
		for i := range 100_000 {
			k.Of(fmt.Sprint(i)).Take(time.Now())
			time.Sleep(10 * time.Millisecond)
			if len(k.of) > 300 {
				t.Fatalf("%d limiters, but only a hundred were used in the second in which one fills", len(k.of))
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
			t.Error("one that was not full was forgotten")
		}
	})
}
