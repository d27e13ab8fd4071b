// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// A Group passes the suite of dispatch.Ownership, over a network that loses and delays requests and replies.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/proxy"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func TestOwnership(t *testing.T) {
	server := single(t, t.TempDir(), 0)
	nc := connect(t, server.ClientURL())
	js := must(jetstream.New(nc))(t)
	groups := 0
	ownertest.Run(t, func(t testing.TB, partitions int) ownertest.Group {
		groups++
		name := fmt.Sprint("group", groups)
		must(js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}))(t)
		var open []func() // to be closed when the suite has ended the members
		t.Cleanup(func() {
			for _, end := range open {
				end()
			}
		})
		join := func() ownertest.Member {
			p := must(proxy.New(server.Addr().String()))(t)
			nc := must(nats.Connect("nats://"+p.Addr(), nats.MaxReconnects(-1)))(t)
			open = append(open, nc.Close, p.Close)
			group := must(leasenats.OpenGroup(ctx, leasenats.GroupConfig{
				Conn: nc, Stream: name, Subject: name + ".*.>", Partitions: partitions,
				Bucket: name, Group: "g", Session: 500 * time.Millisecond,
				Domain: func(r dispatch.Record) string { return r.Domain[strings.LastIndex(r.Domain, ".")+1:] },
				Ledger: lease.Config{MaxRetries: 100},
			}))(t)
			return ownertest.Member{Ownership: group, Cut: p.Stall, Mend: p.Flow}
		}
		g := ownertest.Group{
			Append: func(partition, domain string, payload []byte) {
				number := partition[strings.LastIndex(partition, "-")+1:]
				must(js.Publish(ctx, name+"."+number+"."+domain, payload))(t)
			},
			Join: join,
		}
		for i := range partitions {
			g.Partitions = append(g.Partitions, fmt.Sprint("g-", i))
		}
		return g
	})
}
