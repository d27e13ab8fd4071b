package leasekafka_test

// This file holds OnError: a member whose brokers cannot be reached says so, once while it lasts.

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

func TestUnreachableBrokersAreToldOnce(t *testing.T) {
	told := make(chan error, 100)
	withoutBrokers(t, func(err error) { told <- err })
	if len(told) != 1 {
		t.Errorf("told %d times", len(told))
	}
}

// Without an OnError, the default logger says so.
func TestUnreachableBrokersAreLogged(t *testing.T) {
	before, said := slog.Default(), new(bytes.Buffer)
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(said, nil)))
	withoutBrokers(t, nil)
	if n := strings.Count(said.String(), "a member cannot go on"); n != 1 {
		t.Errorf("logged %d times: %s", n, said)
	}
}

// withoutBrokers lets a member try three times to reach a broker.
func withoutBrokers(t *testing.T, onError func(error)) {
	t.Helper()
	dials := make(chan struct{}, 1000)
	group, err := leasekafka.New(leasekafka.Config{
		Brokers: []string{"nowhere:9092"}, Group: "g", Topics: []string{"t"}, OnError: onError,
		Options: []kgo.Opt{kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
			dials <- struct{}{}
			return nil, net.ErrClosed
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- group.Hold(ctx, func(context.Context, dispatch.Partition) {}) }()
	for range 3 {
		<-dials
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
