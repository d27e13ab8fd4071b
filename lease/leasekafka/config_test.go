// SPDX-License-Identifier: Apache-2.0

package leasekafka_test

// OpenGroup rejects invalid configurations before a broker is asked; Hold returns the group's final rejections.

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

func TestConfig(t *testing.T) {
	valid := func() leasekafka.GroupConfig {
		return leasekafka.GroupConfig{Brokers: []string{"127.0.0.1:1"}, Group: "g", Topics: []string{"t"}}
	}
	if _, err := leasekafka.OpenGroup(t.Context(), valid()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		field string
		spoil func(*leasekafka.GroupConfig)
	}{
		"no brokers":           {"Brokers", func(c *leasekafka.GroupConfig) { c.Brokers = nil }},
		"no broker's name":     {"Brokers", func(c *leasekafka.GroupConfig) { c.Brokers = []string{""} }},
		"no broker's port":     {"Brokers", func(c *leasekafka.GroupConfig) { c.Brokers = []string{"kafka:http"} }},
		"no group":             {"Group", func(c *leasekafka.GroupConfig) { c.Group = "" }},
		"no topics":            {"Topics", func(c *leasekafka.GroupConfig) { c.Topics = nil }},
		"a topic without name": {"Topics", func(c *leasekafka.GroupConfig) { c.Topics = []string{"t", ""} }},
		"window":               {"Window", func(c *leasekafka.GroupConfig) { c.Window = -1 }},
		"drain":                {"DrainTimeout", func(c *leasekafka.GroupConfig) { c.DrainTimeout = -time.Second }},
		"session":              {"Session", func(c *leasekafka.GroupConfig) { c.Session = time.Millisecond }},
		"rebalance":            {"RebalanceTimeout", func(c *leasekafka.GroupConfig) { c.RebalanceTimeout = -time.Second }},
		"rebalance below drain": {"RebalanceTimeout", func(c *leasekafka.GroupConfig) {
			c.DrainTimeout, c.RebalanceTimeout = time.Minute, time.Minute
		}},
		"ledger": {"Ledger", func(c *leasekafka.GroupConfig) { c.Ledger = lease.Config{MaxBacklog: -1} }},
		"automatic commits": {"Options", func(c *leasekafka.GroupConfig) {
			c.Options = []kgo.Opt{kgo.ConsumerGroup("x"), kgo.AutoCommitMarks()}
		}},
		"commit interval": {"Options", func(c *leasekafka.GroupConfig) {
			c.Options = []kgo.Opt{kgo.AutoCommitInterval(time.Second)}
		}},
		"no automatic commits": {"Options", func(c *leasekafka.GroupConfig) { c.Options = []kgo.Opt{kgo.DisableAutoCommit()} }},
		"another group":        {"Options", func(c *leasekafka.GroupConfig) { c.Options = []kgo.Opt{kgo.ConsumerGroup("x")} }},
		"other balancers": {"Options", func(c *leasekafka.GroupConfig) {
			c.Options = []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}
		}},
		"a callback": {"Options", func(c *leasekafka.GroupConfig) {
			c.Options = []kgo.Opt{kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) {})}
		}},
		"seeds":       {"Options", func(c *leasekafka.GroupConfig) { c.Options = []kgo.Opt{kgo.SeedBrokers("127.0.0.1:2")} }},
		"no client's": {"Options", func(c *leasekafka.GroupConfig) { c.Options = []kgo.Opt{kgo.MetadataMaxAge(-1)} }},
	} {
		cfg := valid()
		c.spoil(&cfg)
		g, err := leasekafka.OpenGroup(t.Context(), cfg)
		var invalid *lease.InvalidError
		if g != nil || !errors.As(err, &invalid) || invalid.Field != "leasekafka.GroupConfig."+c.field ||
			!errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s: %v, %v", name, g, err)
		}
	}

	g := must(leasekafka.OpenGroup(t.Context(), valid()))(t)
	work := func(context.Context, dispatch.Partition) {}
	for field, err := range map[string]error{
		"ctx":   g.Hold(nil, work), //nolint:staticcheck // refused, not a panic
		"work":  g.Hold(t.Context(), nil),
		"Group": new(leasekafka.Group).Hold(t.Context(), work),
	} {
		var invalid *lease.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "leasekafka."+field {
			t.Errorf("Hold with a bad %s: %v", field, err)
		}
	}
}

// A group waits for no longer drain than it says, so its consumers have none.
func TestNoDrainIsLongerThanTheGroupWaits(t *testing.T) {
	group := must(leasekafka.OpenGroup(t.Context(), leasekafka.GroupConfig{
		Brokers: []string{"127.0.0.1:1"}, Group: "g", Topics: []string{"t"}, DrainTimeout: 2 * time.Second,
	}))(t)
	cfg := dispatch.Config{Handler: func(context.Context, dispatch.Job) error { return nil }, DeadLetter: dispatch.Discard}
	for drain, allowed := range map[time.Duration]bool{0: true, time.Second: true, 2 * time.Second: true, 3 * time.Second: false} {
		cfg.DrainTimeout = drain
		_, err := dispatch.NewConsumer(group, cfg)
		var invalid *lease.InvalidError
		if allowed && err != nil || !allowed && (!errors.As(err, &invalid) || invalid.Field != "dispatch.Config.DrainTimeout") {
			t.Errorf("%v: %v", drain, err)
		}
	}
}

// What a consumer does not say of its drain, it has from its group.
func TestConsumerDrainsAsLongAsItsGroupWaits(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := fake(t, 1)
		k.produce(t, of(1, 1, 1)...)
		cfg := k.config()
		cfg.DrainTimeout = 20 * time.Second
		started := make(chan struct{})
		a := run(t, cfg, dispatch.Config{Handler: func(ctx context.Context, _ dispatch.Job) error {
			close(started)
			select {
			case <-ctx.Done():
				t.Error("the handler was cut off")
			case <-time.After(15 * time.Second): // more than dispatch's own default
			}
			return ctx.Err()
		}})
		<-started
		a.cancel()
		if err := <-a.result; err != nil {
			t.Error(err)
		}
	})
}

// A final rejection by the group ends Hold.
func TestHoldRefused(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := start(t, 1)
		cfg := k.config()
		cfg.Session = 24 * time.Hour // above the brokers' limit
		g := must(leasekafka.OpenGroup(t.Context(), cfg))(t)
		if err := g.Hold(t.Context(), nothing); !errors.Is(err, kerr.InvalidSessionTimeout) {
			t.Errorf("a session of a day: %v", err)
		}
	})
}

func nothing(ctx context.Context, _ dispatch.Partition) { <-ctx.Done() }

// Without a broker Hold waits for one, until ctx is done.
func TestHoldUnreachable(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := fake(t, 1)
		k.Close()
		g := must(leasekafka.OpenGroup(t.Context(), k.config()))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := g.Hold(ctx, nothing); err != nil {
			t.Errorf("Hold: %v", err)
		}
	})
}

// A commit that is rejected for another reason than the membership is a temporary error; the partition stays.
func TestCommitRefused(t *testing.T) {
	virtually(t, func(t *testing.T) {
		k := fake(t, 1)
		k.produce(t, of(3, 1, 1)...)
		h := hold(t, k.config())
		p := <-h.taken
		k.ControlKey(offsetCommit, func(req kmsg.Request) (kmsg.Response, error, bool) {
			return answer(req.(*kmsg.OffsetCommitRequest), kerr.GroupAuthorizationFailed), nil, true
		})
		err := p.Source.Commit(t.Context(), 1)
		if !strings.HasPrefix(err.Error(), "leasekafka: "+k.topic+"/0: ") || !errors.Is(err, kerr.GroupAuthorizationFailed) {
			t.Errorf("refused: %v", err)
		}
		if err := p.Source.Commit(t.Context(), 2); err != nil {
			t.Errorf("the next: %v", err)
		}
		close(p.over)
		h.stop(t)
	})
}
