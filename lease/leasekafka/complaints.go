// SPDX-License-Identifier: Apache-2.0

package leasekafka

// A member reports its client's errors to OnError: the client retries for ever and only logs them.

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/stopbank/stopbank/lease/internal/episode"
)

// complaints reports the errors that the client passes to its hooks.
type complaints struct {
	onError            func(error)
	alive              context.Context // the client's; errors after its end are not reported
	connecting, member episode.Episode
}

var (
	_ kgo.HookBrokerConnect    = (*complaints)(nil)
	_ kgo.HookGroupManageError = (*complaints)(nil)
)

// OnBrokerConnect implements kgo.HookBrokerConnect. err is also set if the broker does not answer or rejects the connection.
func (c *complaints) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		err = fmt.Errorf("leasekafka: no connection to the broker %s:%d: %w", broker.Host, broker.Port, err)
	}
	c.report(&c.connecting, err)
}

// OnGroupManageError implements kgo.HookGroupManageError. The episode ends when the member joins.
func (c *complaints) OnGroupManageError(err error) {
	if !permanentlyRejected(err) { // otherwise Hold returns it
		c.report(&c.member, fmt.Errorf("leasekafka: the membership is lost, or cannot begin: %w", err))
	}
}

func (c *complaints) report(e *episode.Episode, err error) {
	if c.alive.Err() == nil {
		e.Tell(c.onError, err)
	}
}
