package leasekafka_test

// This file holds OnError: a member whose brokers cannot be reached says so, once while it lasts.

import (
	"context"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasekafka"
)

func TestUnreachableBrokersAreToldOnce(t *testing.T) {
	told, dials := make(chan error, 100), make(chan struct{}, 1000)
	group, err := leasekafka.New(leasekafka.Config{
		Brokers: []string{"nowhere:9092"}, Group: "g", Topics: []string{"t"}, OnError: func(err error) { told <- err },
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
	if len(told) != 1 {
		t.Errorf("told %d times", len(told))
	}
}
