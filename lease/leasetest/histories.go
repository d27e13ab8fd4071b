// SPDX-License-Identifier: Apache-2.0

// The concurrent half of the random tests: histories of overlapping calls, checked by porcupine.

package leasetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

const (
	historyRounds  = 60
	historyClients = 4
	historyCalls   = 40 // by each client
	// judgeLimit bounds the search for an order; a history that takes longer fails the test.
	judgeLimit = time.Minute
)

func histories(t testing.TB, open Open) {
	rounds := historyRounds
	if testing.Short() {
		rounds /= 5
	}
	judged := 0
	for round := range rounds {
		cfg := lease.Config{MaxRetries: round % 3, MaxBacklog: round % 4 * 2}
		history := record(open(t, cfg), uint64(round))
		if err := uniqueTokens(history); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for domain, part := range byDomain(history) {
			if verdict := porcupine.CheckOperationsTimeout(judge(cfg), part, judgeLimit); verdict != porcupine.Ok {
				t.Fatalf("round %d: no order explains the calls on %s (%s):\n%s", round, domain, verdict, describe(part))
			}
			judged++
		}
	}
	t.Logf("%d histories judged", judged)
}

// record lets clients call concurrently and notes begin and end of each call on a logical clock.
func record(l lease.Ledger, seed uint64) []porcupine.Operation {
	var (
		clock, floor atomic.Int64
		group        sync.WaitGroup
		parts        [historyClients][]porcupine.Operation
		known        [2]atomic.Uint64 // last token seen of each domain, by any client
	)
	for client := range historyClients {
		group.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(client)))
			for range historyCalls {
				d := rnd.IntN(len(known))
				c := model.Call{Domain: domains[d], Offset: floor.Load() + rnd.Int64N(8) - 1}
				c.Op = []step.Kind{
					0, step.TryAcquire, step.TryAcquire, step.TryAcquire, step.Offer, step.AcquireNext, step.AcquireNext,
					step.Succeed, step.Succeed, step.Succeed, step.Fail, step.Reclaim, step.Release, step.Compact,
				}[rnd.IntN(14)]
				switch c.Op {
				case step.Compact:
					c.Domain, c.Offset = "", floor.Add(1)
				case step.Succeed, step.Fail, step.Reclaim, step.Release:
					if rnd.IntN(5) == 0 {
						d = 1 - d // the other domain's token, which this domain must reject
					}
					c.Token, c.Offset = lease.Token(known[d].Load()), 0
				}
				op := porcupine.Operation{ClientId: client, Input: c, Call: clock.Add(1)}
				reply := c.Do(ctx, l)
				op.Output, op.Return = reply, clock.Add(1)
				for _, token := range []lease.Token{reply.Acquisition.Lease.Token, reply.Lease.Token} {
					if token != 0 {
						known[d].Store(uint64(token))
					}
				}
				parts[client] = append(parts[client], op)
			}
		})
	}
	group.Wait()
	var all []porcupine.Operation
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// byDomain splits a history by domain. A Compact belongs to every domain: in each it happens at some moment during the call.
func byDomain(history []porcupine.Operation) map[string][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, domain := range domains[:2] {
		for _, op := range history {
			if in := op.Input.(model.Call).Domain; in == domain || in == "" {
				parts[domain] = append(parts[domain], op)
			}
		}
	}
	return parts
}

// uniqueTokens: no two grants of a ledger share a token, in any domains.
func uniqueTokens(history []porcupine.Operation) error {
	granted := map[lease.Token]model.Call{}
	for _, op := range history {
		c, r := op.Input.(model.Call), op.Output.(model.Reply)
		token := r.Lease.Token
		if r.Acquisition.Status == lease.Acquired {
			token = r.Acquisition.Lease.Token
		}
		if token == 0 {
			continue
		}
		if other, taken := granted[token]; taken {
			return fmt.Errorf("%v and %v got the same token %d", c, other, token)
		}
		granted[token] = c
	}
	return nil
}

// judge is the naive model in porcupine's terms.
func judge(cfg lease.Config) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return model.New() },
		Step: func(state, input, output any) (bool, any) {
			next := state.(*model.Domain).Clone()
			err := next.Accept(cfg, input.(model.Call), output.(model.Reply))
			return err == nil, next
		},
		Equal: func(a, b any) bool { return a.(*model.Domain).Equal(b.(*model.Domain)) },
	}
}

func describe(history []porcupine.Operation) string {
	var b strings.Builder
	for _, op := range history {
		fmt.Fprintf(&b, "  client %d [%d, %d] %v: %v\n", op.ClientId, op.Call, op.Return, op.Input, op.Output)
	}
	return b.String()
}
