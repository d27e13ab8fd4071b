package leasekafka

// This file tells of brokers that cannot be reached, once per episode: the client retries for ever and says so only to its logger.

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// complaints watches a client's connections.
type complaints struct {
	tell  func(error)
	alive context.Context

	mu   sync.Mutex // guards told
	told bool       // since a broker was connected to last
}

var _ kgo.HookBrokerConnect = (*complaints)(nil)

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (c *complaints) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	c.mu.Lock()
	first := err != nil && !c.told
	c.told = err != nil
	c.mu.Unlock()
	if first && c.alive.Err() == nil {
		c.tell(err)
	}
}
