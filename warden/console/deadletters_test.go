// What the desk of dead letters says, and what it may do: hang, panic, fail, or say too much.

package console

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// ask returns what the console serves of its dead letters.
func ask(t *testing.T, c *Console) map[string]any {
	t.Helper()
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/dead-letters.json", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return decode(t, w.Body.String())
}

func TestDeadLetters(t *testing.T) {
	if answer := ask(t, mustNew(t, Config{Warden: mustWarden(t, new(script))})); answer != nil {
		t.Errorf("without a desk: %v", answer)
	}
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := mustNew(t, Config{DeadLetters: func(context.Context) (DeadLetters, error) {
			asked++
			said := DeadLetters{Waiting: 1000, Parked: 1, Oldest: time.Now().Add(-time.Hour)}
			for i := range 1000 {
				said.Letters = append(said.Letters, DeadLetter{
					ID: fmt.Sprint("p@", i), Key: strings.Repeat("k", 1000), At: time.Now(), Attempts: 11, Failure: strings.Repeat("f", 10_000), Parked: i == 0, Note: "\xff",
				})
			}
			return said, nil
		}})
		answer := ask(t, c)
		first, _ := at(t, answer, "letters", 0).(map[string]any)
		if got := fmt.Sprintln(answer["waiting"], answer["parked"], answer["trouble"], first["id"], first["parked"], first["attempts"]); got != "1000 1  p@0 true 11\n" {
			t.Errorf("the desk said %s", got)
		}
		letters, _ := at(t, answer, "letters").([]any)
		key, _ := first["key"].(string)
		failure, _ := first["failure"].(string)
		if len(letters) != mostLetters || len(key) > longestName+3 || len(failure) > longestFailure+3 {
			t.Errorf("%d letters, a key of %d bytes, a failure of %d", len(letters), len(key), len(failure))
		}
		for range 5 { // many pages
			ask(t, c)
		}
		if asked != 1 {
			t.Errorf("the desk was asked %d times within five seconds", asked)
		}
		time.Sleep(lettersAge)
		ask(t, c)
		if asked != 2 {
			t.Errorf("the desk was asked %d times, want 2", asked)
		}
	})
}

func TestDeadLettersInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		say := func() (DeadLetters, error) { return DeadLetters{Waiting: 7}, nil }
		c := mustNew(t, Config{DeadLetters: func(context.Context) (DeadLetters, error) { return say() }})
		for want, how := range map[string]func() (DeadLetters, error){
			"the database is away": func() (DeadLetters, error) {
				return DeadLetters{Waiting: 7, Letters: []DeadLetter{{ID: "half"}}}, errors.New("the database is away")
			},
			"Config.DeadLetters panicked: boo":                     func() (DeadLetters, error) { panic("boo") },
			"Config.DeadLetters panicked or called runtime.Goexit": func() (DeadLetters, error) { runtime.Goexit(); return DeadLetters{}, nil },
		} {
			time.Sleep(lettersAge)
			say = how
			answer := ask(t, c)
			trouble, _ := at(t, answer, "trouble").(string)
			if !strings.Contains(trouble, want) || at(t, answer, "waiting") != 0.0 {
				t.Errorf("%v, want %s", answer, want)
			}
		}

		// One that hangs is asked once, and costs each look its patience; then all is well again.
		hang, asked := make(chan struct{}), 0
		say = func() (DeadLetters, error) { asked++; <-hang; return DeadLetters{Waiting: 7}, nil }
		time.Sleep(lettersAge)
		for range 2 {
			began := time.Now()
			if trouble := at(t, ask(t, c), "trouble"); trouble != "Config.DeadLetters does not answer" || time.Since(began) != lettersWait {
				t.Errorf("%v after %v", trouble, time.Since(began))
			}
		}
		close(hang)
		synctest.Wait()
		if answer := ask(t, c); at(t, answer, "waiting") != 7.0 || at(t, answer, "trouble") != "" || asked != 1 {
			t.Errorf("%v, asked %d times", answer, asked)
		}
	})
}
