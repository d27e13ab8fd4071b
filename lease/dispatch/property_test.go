// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D5 and D8 for any company of keys and any moment of loss; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// The ways in which a key is a nuisance. Of the first two, every record has a place for as long as it runs.
const (
	stuck = iota // runs for ever
	slow
	broken    // fails each time
	panicked  // panics each time
	unleased  // its ledger fails for it,
	unended   // or only where it would end a lease,
	uncounted // or where it would count a failure
	nuisances
)

// The model is one queue: with a place left over for them, those who are no nuisance need no longer than one after the other,
// however many nuisances there are, as long as those together leave room.
func TestPropertyANuisanceDelaysOnlyItself(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kinds := rapid.SliceOfN(rapid.IntRange(0, nuisances-1), 0, 6).Draw(rt, "nuisances")
		share := rapid.IntRange(1, 5).Draw(rt, "share")
		spare := rapid.IntRange(1, 20).Draw(rt, "spare")
		places := rapid.IntRange(1, 3).Draw(rt, "places left")
		for _, kind := range kinds {
			if kind <= slow {
				places++
			}
		}
		// of keys: first the nuisances, then five others
		order := rapid.SliceOfN(rapid.IntRange(0, len(kinds)+4), 1, 200).Draw(rt, "order")
		var wrong string
		synctest.Test(t, func(t *testing.T) {
			log, others := new(dispatch.Log), 0
			for _, key := range order {
				log.Append(fmt.Sprint("k", key), nil)
				if key >= len(kinds) {
					others++
				}
			}
			of := func(domain string) (kind int) {
				key := 0
				if _, err := fmt.Sscanf(domain, "k%d", &key); err != nil || key >= len(kinds) {
					return nuisances
				}
				return kinds[key]
			}
			p := newProcess(memory(t, 1<<20), log)
			p.fault = func(call, domain string) (before, after error) {
				switch kind := of(domain); {
				case kind == unleased && call != "Inspect", kind == unended && call == "Succeed", kind == uncounted && call == "Fail":
					before = errLost
				}
				return before, nil
			}
			began, release := time.Now(), make(chan struct{})
			var mu sync.Mutex
			done, last := 0, began
			r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
				MaxInFlight: places, MaxPerDomain: share, MaxBuffered: share*len(kinds) + max(share,
					spare), Backoff: 5 * time.Second, MaxBackoff: 5 * time.Second,
				Handler: func(_ context.Context, job dispatch.Job) error {
					switch of(job.Record.Domain) {
					case stuck:
						<-release
						return nil
					case slow:
						time.Sleep(time.Minute)
						return nil
					case broken, uncounted:
						return errors.New("on purpose")
					case unended:
						return nil
					case panicked:
						panic("on purpose")
					}
					time.Sleep(time.Second)
					mu.Lock()
					defer mu.Unlock()
					done, last = done+1, time.Now()
					return nil
				},
			})
			time.Sleep(time.Duration(others+1) * time.Second)
			mu.Lock()
			if took := last.Sub(began); done != others || took > time.Duration(others)*time.Second+time.Second/2 {
				wrong = fmt.Sprintf("D5: %d of %d records beside nuisances %v took %v", done, others, kinds, took)
			}
			mu.Unlock()
			close(release)
			p.kill()
			_ = r.stop()
			time.Sleep(time.Minute) // what runs ends
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// The model is an instant: from it on nothing begins and nothing is committed, and Run ends with ErrLost as soon as all that
// runs has ended, or the time for that is over.
func TestPropertyNothingAfterTheLoss(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 60).Draw(rt, "keys")
		takes := rapid.SliceOfN(rapid.IntRange(1, 40), len(keys), len(keys)).Draw(rt, "takes")
		fails := rapid.IntRange(1, 10).Draw(rt, "fails each")
		who := rapid.SampledFrom([]string{"Committed", "Held", "Fetch", "Commit", "TryAcquire", "the context"}).Draw(rt, "who says it")
		after := time.Duration(rapid.IntRange(0, 400).Draw(rt, "after"))*time.Millisecond + time.Millisecond/2
		if who == "Committed" || who == "Held" { // which are asked once
			after = 0
		}
		var wrong string
		synctest.Test(t, func(t *testing.T) {
			log := new(dispatch.Log)
			for _, key := range keys {
				log.Append(fmt.Sprint("k", key), nil)
			}
			loss := fmt.Errorf("it said: %w", dispatch.Lost("p", errLost))
			began := time.Now()
			var mu sync.Mutex
			var said time.Time // zero: not yet
			late := ""
			note := func(format string, args ...any) {
				// What begins at the instant of the call that says it may have been on its way; beside the context nothing was.
				if !said.IsZero() && late == "" && (who == "the context" || time.Since(said) > 0) {
					late = fmt.Sprintf(format, args...)
				}
			}
			p := newProcess(memory(t, 3), log)
			p.fault = func(call, _ string) (before, after2 error) {
				mu.Lock()
				defer mu.Unlock()
				if call == "Commit" {
					note("a commit, %v after the loss", time.Since(said))
				}
				if call == who && time.Since(began) >= after {
					if said.IsZero() {
						said = time.Now()
					}
					return loss, nil
				}
				return nil, nil
			}
			r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
				MaxInFlight: 4, DrainTimeout: time.Minute, CommitEvery: 10 * time.Millisecond,
				Handler: func(_ context.Context, job dispatch.Job) error {
					mu.Lock()
					note("record %d begins %v after the loss", job.Record.Offset, time.Since(said))
					mu.Unlock()
					time.Sleep(time.Duration(takes[int(job.Record.Offset)%len(takes)]) * time.Millisecond)
					if int(job.Record.Offset)%fails == 0 && job.Lease.RetryCount == 0 {
						return errors.New("on purpose")
					}
					return nil
				}})
			time.Sleep(after)
			synctest.Wait()
			if who == "the context" {
				mu.Lock()
				said = time.Now()
				mu.Unlock()
				r.cancel(loss)
			}
			go func() { // so that there is something to read and to commit
				for range 50 {
					time.Sleep(20 * time.Millisecond)
					log.Append("later", nil)
				}
			}()
			err := r.ended()
			mu.Lock()
			switch {
			case !errors.Is(err, dispatch.ErrLost) || !errors.Is(err, errLost) || errors.Is(err, dispatch.ErrDrain):
				wrong = fmt.Sprintf("D8: Run of a partition that is lost: %v", err)
			case late != "":
				wrong = "D8: " + late
			case r.running() != 0:
				wrong = fmt.Sprintf("D8: Run has ended and %d run", r.running())
			case time.Since(said) > 41*time.Millisecond:
				wrong = fmt.Sprintf("D8: Run has ended %v after the loss", time.Since(said))
			}
			mu.Unlock()
			time.Sleep(2 * time.Second)
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}
