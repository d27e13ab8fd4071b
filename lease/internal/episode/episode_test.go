// SPDX-License-Identifier: Apache-2.0

// When a lasting failure is reported.

package episode_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/internal/episode"
)

// A failure is told when it begins, each minute while it lasts, and at once when it begins again.
func TestEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e episode.Episode
		told := 0
		fail := func(want int) {
			t.Helper()
			e.Tell(func(error) { told++ }, errors.New("down"))
			if told != want {
				t.Errorf("told %d times, want %d", told, want)
			}
		}
		fail(1)
		time.Sleep(time.Minute - 1)
		fail(1)
		time.Sleep(time.Nanosecond)
		fail(2)
		fail(2)
		if !e.Lasts() {
			t.Error("it is over before it ends")
		}
		e.Tell(func(err error) { t.Errorf("told of %v", err) }, nil)
		if e.Lasts() {
			t.Error("it lasts though it has ended")
		}
		fail(3)
	})
}
