// SPDX-License-Identifier: Apache-2.0

// A member that comes back from the dead.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// holding is an Ownership made of a function.
type holding func(context.Context, func(context.Context, dispatch.Partition)) error

func (h holding) Hold(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
	return h(ctx, work)
}

// zombie: a member is cut off in the middle of a handler, and goes on when another one has done everything, under greater tokens.
// The ledger takes nothing from it, and the Source no commit.
func zombie(g *team) {
	const each = 40
	for n, partition := range g.group.Partitions {
		for i := range each {
			g.group.Append(partition, fmt.Sprint("k", n, "-", i%4), fmt.Append(nil, n, "-", i))
		}
	}
	m := g.group.Join()
	hangs, hang, left := make(chan dispatch.Job, 1), make(chan struct{}), make(chan dispatch.Partition, 100)
	keeping := func(ctx context.Context, work func(context.Context, dispatch.Partition)) error {
		return m.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
			work(ctx, p)
			left <- p
		})
	}
	old := follow(g, holding(keeping), func(job dispatch.Job) {
		if string(job.Record.Payload) == "0-7" {
			hangs <- job
			<-hang
		}
	}, nil)
	goOn := sync.OnceFunc(func() {
		m.Mend()
		close(hang)
	})
	defer goOn()
	job := within(g, "a handler that hangs", hangs)
	m.Cut()
	heir := follow(g, g.group.Join(), nil, nil)
	heir.until("everything is done without it", func() bool {
		old.mu.Lock()
		defer old.mu.Unlock()
		all := maps.Clone(old.over)
		maps.Copy(all, heir.over)
		return len(all) == each*len(g.group.Partitions)
	})
	goOn()
	p := within(g, "the old one gives the partition up", left)
	for p.Ledger != job.Ledger {
		p = within(g, "the old one gives the partition up", left)
	}
	heir.mu.Lock()
	defer heir.mu.Unlock()
	if now := heir.tokens[job.Lease.Domain]; now <= job.Lease.Token {
		g.Errorf("token %d of the old owner, and %d of the next", job.Lease.Token, now)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if c, err := p.Ledger.Succeed(ctx, job.Lease.Domain, job.Lease.Token); err == nil {
		g.Errorf("the ledger took what the old owner completed: %+v", c)
	}
	if err := p.Source.Commit(ctx, job.Record.Offset); !errors.Is(err, dispatch.ErrLost) {
		g.Errorf("Commit of the old owner: %v, want ErrLost", err)
	}
}
