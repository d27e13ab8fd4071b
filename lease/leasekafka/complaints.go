package leasekafka

// This file is what a member reports to OnError of its client, which retries for ever and says so only to its logger.

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease/internal/episode"
)

// complaints are the client's hooks.
type complaints struct {
	report             func(error)
	alive              context.Context // the client's: what ends with it is no failure
	connecting, member episode.Episode
}

var (
	_ kgo.HookBrokerConnect    = (*complaints)(nil)
	_ kgo.HookGroupManageError = (*complaints)(nil)
)

// OnBrokerConnect implements kgo.HookBrokerConnect. Its err is also that of a connection on which nobody answers, or that is
// rejected.
func (c *complaints) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		err = fmt.Errorf("leasekafka: no connection to the broker %s:%d: %w", broker.Host, broker.Port, err)
	}
	c.tell(&c.connecting, err)
}

// OnGroupManageError implements kgo.HookGroupManageError. The episode ends when the member joins.
func (c *complaints) OnGroupManageError(err error) {
	if !permanentlyRejected(err) { // that is Hold's error
		c.tell(&c.member, fmt.Errorf("leasekafka: the membership is lost, or cannot begin: %w", err))
	}
}

func (c *complaints) tell(e *episode.Episode, err error) {
	if c.alive.Err() == nil {
		e.Tell(c.report, err)
	}
}
