// SPDX-License-Identifier: Apache-2.0

// What the desk of dead letters says, and what it may do: hang, panic, fail, or say too much.

package console

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// letters returns what the console serves of its dead letters.
func letters(t *testing.T, c *Console) map[string]any {
	t.Helper()
	w := ask(c, "dead-letters.json")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return decode(t, w.Body.String())
}

func TestDeadLetters(t *testing.T) {
	if answer := letters(t, mustNew(t, Config{Warden: mustWarden(t, new(script))})); answer != nil {
		t.Errorf("without a desk: %v", answer)
	}
	synctest.Test(t, func(t *testing.T) {
		asked, first := 0, time.Now()
		c := mustNew(t, Config{DeadLetters: func(context.Context) iter.Seq2[DeadLetter, error] {
			asked++
			return func(yield func(DeadLetter, error) bool) {
				for i := range 1000 {
					if !yield(DeadLetter{
						ID: fmt.Sprint("p@", i), Key: strings.Repeat("k", 1000),
						At: first.Add(time.Duration(1000-i) * time.Second), Attempts: 11,
						Failure: strings.Repeat("f", 10_000), Parked: i == 0, Note: "\xff",
					}, nil) {
						return
					}
				}
			}
		}})
		answer := letters(t, c)
		top, _ := at(t, answer, "letters", 0).(map[string]any)
		if got := fmt.Sprintln(
			answer["waiting"], answer["parked"], answer["trouble"], top["id"], top["parked"], top["attempts"], answer["oldest"],
		); got != "1000 1  p@0 true 11 "+first.Add(time.Second).Format(time.RFC3339)+"\n" {
			t.Errorf("the desk said %s", got)
		}
		list, _ := at(t, answer, "letters").([]any)
		key, _ := top["key"].(string)
		failure, _ := top["failure"].(string)
		if len(list) != mostLetters || len(key) > longestName+3 || len(failure) > longestFailure+3 {
			t.Errorf("%d letters, a key of %d bytes, a failure of %d", len(list), len(key), len(failure))
		}
		for range 5 { // many pages
			letters(t, c)
		}
		if asked != 1 {
			t.Errorf("the desk was asked %d times within five seconds", asked)
		}
		time.Sleep(lettersMaxAge)
		letters(t, c)
		if asked != 2 {
			t.Errorf("the desk was asked %d times, want 2", asked)
		}
	})
}

func TestDeadLettersInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type yield = func(DeadLetter, error) bool
		var list func(yield)
		c := mustNew(t, Config{DeadLetters: func(context.Context) iter.Seq2[DeadLetter, error] {
			return func(y func(DeadLetter, error) bool) { list(y) }
		}})
		for want, broken := range map[string]func(yield){
			"the database is away": func(y yield) {
				y(DeadLetter{ID: "half"}, nil)
				y(DeadLetter{}, errors.New("the database is away"))
			},
			"Config.DeadLetters panicked: boo":                     func(yield) { panic("boo") },
			"Config.DeadLetters panicked or called runtime.Goexit": func(yield) { runtime.Goexit() },
			"context deadline exceeded": func(y yield) { // it does not heed its context
				for y(DeadLetter{ID: "one more"}, nil) {
					time.Sleep(time.Second)
				}
			},
		} {
			time.Sleep(lettersMaxAge)
			list = broken
			letters(t, c)
			synctest.Wait()
			answer := letters(t, c)
			trouble, _ := at(t, answer, "trouble").(string)
			if !strings.Contains(trouble, want) || at(t, answer, "waiting") != 0.0 {
				t.Errorf("%v, want %s", answer, want)
			}
		}

		// One that hangs is asked once, and costs each look five seconds; then all is well again.
		hang, asked := make(chan struct{}), 0
		list = func(y yield) { asked++; <-hang; y(DeadLetter{ID: "one"}, nil) }
		time.Sleep(lettersMaxAge)
		for range 2 {
			began := time.Now()
			if trouble := at(t, letters(t, c), "trouble"); trouble != "Config.DeadLetters does not answer" ||
				time.Since(began) != lettersTimeout {
				t.Errorf("%v after %v", trouble, time.Since(began))
			}
		}
		close(hang)
		time.Sleep(lettersMaxAge)
		if answer := letters(t, c); at(t, answer, "waiting") != 1.0 || at(t, answer, "trouble") != "" || asked != 2 {
			t.Errorf("%v, asked %d times", answer, asked)
		}
	})
}
