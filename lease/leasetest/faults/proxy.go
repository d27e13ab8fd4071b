package faults

// This file is the network: replies that are dropped.

import (
	"context"

	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/proxy"
)

// losing is a store whose replies the proxy drops at times, after the server has sent them. It counts the dropped replies of swaps
// that the server had applied, by reading through a connection without the proxy.
type losing struct {
	durable.Store
	past    durable.Store // the same store, without the proxy
	proxy   *proxy.Proxy
	lose    func() bool
	applied int
	dropped int
}

func (l *losing) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	if name == "" || !l.lose() {
		return l.Store.Swap(ctx, name, old, state, index)
	}
	l.proxy.Arm()
	version, err := l.Store.Swap(ctx, name, old, state, index)
	if l.proxy.Disarm() {
		l.dropped++
	}
	if err != nil {
		if _, now, loadErr := l.past.Load(ctx, name); loadErr == nil && now != old {
			l.applied++
		}
	}
	return version, err
}
