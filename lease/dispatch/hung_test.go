package dispatch_test

// This file holds D9 where a handler does not return: its place is lost, its partition's turn is not.

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Six others are busy and three places are left. The partition of the handler that hangs gets its part of them once that is over its time.
func TestD9_HungHandlerStarvesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		count := map[string]int{}
		hang := make(chan struct{})
		c := consume(t, dispatch.Config{MaxInFlight: 4, AttemptTimeout: time.Minute, Handler: func(_ context.Context, job dispatch.Job) error {
			if job.Record.Domain == "hung/0" {
				<-hang
				return nil
			}
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			count[string(job.Record.Payload)]++
			return nil
		}})
		c.give(filled(t, "hung", 20))
		time.Sleep(time.Millisecond)
		for i := range 6 {
			c.give(filled(t, fmt.Sprint("busy", i), 2000))
		}
		time.Sleep(10 * time.Minute)
		mu.Lock()
		if count["hung"] < 19 {
			t.Errorf("%d of 19 done", count["hung"])
		}
		mu.Unlock()
		close(hang)
		_ = c.stop()
	})
}
