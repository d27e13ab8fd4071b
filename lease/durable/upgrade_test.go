package durable_test

// This file lets programs of two versions work on one ledger, the older of which cannot read what Release writes.

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/model"
)

// aged shows a store as a program sees it that was built before Release: what was released is in a format that it does not know.
type aged struct{ *durable.MemStore }

func (a aged) Load(ctx context.Context, name string) ([]byte, uint64, error) {
	b, version, err := a.MemStore.Load(ctx, name)
	if err == nil && version != 0 && name != "" {
		b, err = durable.Newer(b, name)
	}
	return b, version, err
}

// A fleet is replaced twice while it works: by programs that read what Release writes and do not write it (OldReaders), then by programs that do.
// No call meets a record that it cannot read, and every answer is that of one ledger. A program of the first kind that was
// overlooked is refused where something is released, and spoils nothing.
func TestPropertyRollingUpgrade(t *testing.T) {
	var refused, overlooked, released int
	rapid.Check(t, func(t *rapid.T) {
		cfg := lease.Config{MaxRetries: 2}
		store := &durable.MemStore{}
		program := func(c durable.Config) *durable.Ledger {
			c.MaxRetries, c.MaxCached = cfg.MaxRetries, rapid.IntRange(0, 2).Draw(t, "MaxCached")
			return must(durable.New(c))(t)
		}
		old := func() *durable.Ledger { return program(durable.Config{Store: aged{store}}) }
		generations := []func() *durable.Ledger{
			func() *durable.Ledger { return program(durable.Config{Store: store, OldReaders: true}) },
			func() *durable.Ledger { return program(durable.Config{Store: store}) },
		}
		fleet := []*durable.Ledger{old(), old(), old()}
		stray := old()
		models := map[string]*model.Domain{"A": model.New(), "B": model.New()}
		draw := func() model.Call {
			c := model.Call{
				Op: rapid.SampledFrom([]lease.OpKind{
					lease.OpTryAcquire, lease.OpOffer, lease.OpAcquireNext, lease.OpSucceed, lease.OpFail, lease.OpReclaim, lease.OpRelease, lease.OpRelease,
				}).Draw(t, "op"),
				Domain: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "domain"),
				Offset: rapid.Int64Range(0, 12).Draw(t, "offset"),
			}
			c.Token = models[c.Domain].Highest
			return c
		}
		work := func(first int) { // the old ones are those from first on
			for range rapid.IntRange(0, 25).Draw(t, "calls") {
				i := rapid.IntRange(0, len(fleet)-1).Draw(t, "program")
				c := draw()
				if c.Op == lease.OpRelease && i >= first {
					continue // which they do not know
				}
				reply := c.Do(ctx, fleet[i])
				var invalid *lease.InvalidError
				if c.Op == lease.OpRelease && errors.As(reply.Err, &invalid) && invalid.Field == "durable.Config.OldReaders" {
					refused++
					continue // the model, which is as it was, judges what follows
				}
				noError(t, models[c.Domain].Accept(cfg, c, reply))
				if c.Op == lease.OpRelease && reply.Err == nil {
					released++
				}
			}
		}
		for at, next := range generations {
			for i := range fleet {
				fleet[i] = next()
				work(i + 1 + at*len(fleet))
			}
		}
		for range rapid.IntRange(0, 20).Draw(t, "calls of the one overlooked") {
			c := draw()
			if c.Op == lease.OpRelease {
				continue
			}
			b, _, _ := store.Load(ctx, c.Domain)
			reply := c.Do(ctx, stray)
			var newer *durable.NewerError
			if l := models[c.Domain].Lease; l != nil && l.Released {
				overlooked++
				after, _, _ := store.Load(ctx, c.Domain)
				if !errors.As(reply.Err, &newer) || newer.Domain != c.Domain || !bytes.Equal(b, after) {
					t.Fatalf("L12: %v beside %+v: %v", c, l, reply)
				}
			} else if err := models[c.Domain].Accept(cfg, c, reply); err != nil {
				t.Fatal(err)
			}
		}
		for domain, m := range models {
			look := model.Call{Domain: domain}
			noError(t, m.Accept(cfg, look, look.Do(ctx, fleet[0])))
		}
	})
	t.Logf("%d refused for the sake of old readers, %d released, %d calls of an old reader beside what was released", refused, released, overlooked)
	if refused == 0 || released == 0 || overlooked == 0 {
		t.Error("L12: a part of the upgrade was not tried")
	}
}
