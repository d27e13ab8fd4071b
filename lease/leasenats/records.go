// SPDX-License-Identifier: Apache-2.0

package leasenats

// A member's records come over a connection of their own: what renews its membership, commits and fences goes over
// GroupConfig.Conn, and never waits behind them.

import (
	"context"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// records is the connection of one Hold, made when it is needed. One that breaks is not mended: the next call makes another.
type records struct {
	of      *nats.Conn
	options nats.Options
	turn    chan struct{} // full while one connects; guards conn
	conn    *nats.Conn
}

// recordOptions are those of conn. Only conn tells its user what becomes of it: whoever ends a process when a connection is closed
// means that one.
func recordOptions(o nats.Options) nats.Options {
	o.Name = strings.TrimSpace(o.Name + " records")
	o.AllowReconnect, o.RetryOnFailedConnect, o.SubChanLen = false, false, mostMessages+16
	o.ConnectedCB, o.ReconnectedCB, o.DisconnectedCB, o.DisconnectedErrCB, o.ClosedCB = nil, nil, nil, nil, nil
	o.DiscoveredServersCB, o.LameDuckModeHandler, o.ReconnectErrCB = nil, nil, nil
	return o
}

// open returns the connection. It goes to the server of the other one, or else to any that this was told of.
func (r *records) open(ctx context.Context) (*nats.Conn, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r.conn != nil && !r.conn.IsClosed() {
		defer func() { <-r.turn }()
		return r.conn, nil
	}
	o := r.options
	if at := r.of.ConnectedUrl(); at != "" && at != o.Url {
		if o.Url != "" {
			o.Servers = append(slices.Clone(o.Servers), o.Url)
		}
		o.Url = at
	}
	var err error
	made := make(chan *nats.Conn, 1)
	go func() { // the client connects without a context
		defer func() { <-r.turn }()
		defer close(made)
		var conn *nats.Conn
		if conn, err = o.Connect(); err == nil {
			r.conn = conn
			made <- conn
		}
	}()
	select {
	case conn := <-made:
		if conn == nil {
			return nil, err
		}
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close ends the connection, and waits for one that is being made.
func (r *records) close() {
	r.turn <- struct{}{}
	if r.conn != nil {
		r.conn.Close()
	}
}
