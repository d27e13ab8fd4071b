// SPDX-License-Identifier: Apache-2.0

package leasenats

// OnError is called at once for a new failure and then once a minute, and for every lost partition. In virtual time.

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// reporting is a member whose connection a test cuts and freezes, and what it reports.
type reporting struct {
	*line
	errors []error
	lost   int
	stop   func() error
}

func report(in *key) *reporting {
	r := &reporting{line: &line{key: in, random: rand.New(rand.NewPCG(1, 1))}}
	cfg := GroupConfig{
		Stream: "S", Subject: "s.*", Partitions: 2, Bucket: "b", Group: "g", Session: session,
		OnError: func(err error) { r.errors = append(r.errors, err) },
	}
	g := &Group{cfg: cfg, kv: r.line, store: &store{bucket: "b"}, key: "group-g"}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- g.Hold(ctx, func(ctx context.Context, _ dispatch.Partition) {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), dispatch.ErrLost) {
				r.set(func() { r.lost++ })
			}
		})
	}()
	r.stop = func() error { cancel(); return <-ended }
	return r
}

func TestGroupTellsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := report(&key{})
		time.Sleep(session)
		for episode := range 2 {
			r.set(func() { r.away = true })
			time.Sleep(150 * time.Second)
			synctest.Wait()
			if want := 3 * (episode + 1); len(r.errors) != want { // at 0, 1 and 2 minutes
				t.Errorf("told %d times, want %d: %v", len(r.errors), want, r.errors)
			}
			r.set(func() { r.away = false })
			time.Sleep(session)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A suspended process meets no error, but has lost its partitions.
func TestGroupTellsOfLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := &key{}
		r := report(both)
		time.Sleep(session)
		other := report(both)
		time.Sleep(session)
		r.set(func() { r.frozen = make(chan struct{}) })
		time.Sleep(2 * session)
		r.set(func() { close(r.frozen); r.frozen = nil })
		time.Sleep(session)
		synctest.Wait()
		if r.lost == 0 || len(r.errors) != 1 || len(other.errors) > 0 {
			t.Errorf("%d works lost, told: %v; the other: %v", r.lost, r.errors, other.errors)
		}
		if err := errors.Join(r.stop(), other.stop()); err != nil {
			t.Error(err)
		}
	})
}
