package leasenats

// This file holds a Group's OnError: a member that cannot reach its bucket says so, once per episode, in virtual time.

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

func TestGroupTellsOncePerEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		away := &line{key: &key{}, away: true, random: rand.New(rand.NewPCG(1, 1))}
		cfg := GroupConfig{Stream: "S", Subject: "s.*", Partitions: 2, Bucket: "b", Group: "g", Session: session, OnError: func(err error) { told = append(told, err) }}
		g := &Group{cfg: cfg, kv: away, store: &Store{bucket: "b"}, key: "group-g"}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- g.Hold(ctx, func(ctx context.Context, _ dispatch.Partition) { <-ctx.Done() })
		}()
		for episode := range 2 {
			away.set(func() { away.away = true })
			time.Sleep(10 * session)
			synctest.Wait()
			if len(told) != episode+1 {
				t.Errorf("episode %d: told %d times: %v", episode, len(told), told)
			}
			away.set(func() { away.away = false })
			time.Sleep(session)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
