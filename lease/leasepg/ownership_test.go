package leasepg_test

// This file is about sharing partitions out: the contract's own suite, and what only PostgreSQL can do to a member.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasepg"
	"github.com/stopbank/stopbank/lease/leasetest/ownertest"
)

func TestOwnership(t *testing.T) {
	need(t)
	ownertest.Run(t, func(t testing.TB, partitions int) ownertest.Group {
		logs := map[string]*ownertest.Log{}
		g := ownertest.Group{Append: func(partition, domain string, payload []byte) { logs[partition].Append(domain, payload) }}
		for i := range partitions {
			l := ownertest.NewLog(t, fmt.Sprint("p", i))
			logs[l.Name], g.Partitions = l, append(g.Partitions, l.Name)
		}
		name := fmt.Sprintf("%s/%d", t.Name(), ledgers.Add(1))
		g.Join = func() ownertest.Member {
			line := ownertest.NewLine(t)
			conn := dedicated(t)
			conn.DialFunc = line.DialContext
			o, err := leasepg.NewOwnership(leasepg.OwnershipConfig{
				Conn: conn, Group: name, Partitions: g.Partitions, Lease: 500 * time.Millisecond,
				Open: func(_ context.Context, partition string) (dispatch.Partition, error) { return logs[partition].Open(), nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			return ownertest.Member{Ownership: o, Cut: line.Cut, Mend: line.Mend}
		}
		return g
	})
}

// dedicated is how a member connects.
func dedicated(t testing.TB) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(need(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
