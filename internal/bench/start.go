// SPDX-License-Identifier: Apache-2.0

// Benchmark rows of a change of process: how soon the next one begins, with a million keys in the ledger.

package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasenats"
	"github.com/stopbank/stopbank/lease/leasepg"
)

// stuck is the key whose only record, the first, is never done: it holds the floor, so that the ledger has to remember the keys of
// all others.
const stuck = "stuck"

// startRows measure the time from the beginning of a process to its first handler, which is stuck's, beside the same where nothing
// else was done.
func startRows() []row {
	var rows []row
	for _, engine := range []string{"PostgreSQL", "JetStream"} {
		if engine == "PostgreSQL" && !havePostgres() {
			continue
		}
		for _, perWindow := range []bool{true, false} {
			rows = append(rows, startRow(engine, perWindow))
		}
	}
	return rows
}

func startRow(engine string, perWindow bool) row {
	layout, open := "ledgers per record", openStartPostgres
	if perWindow {
		layout = "ledgers per window"
	}
	if engine == "JetStream" {
		open = openStartJetstream
	}
	many := sync.OnceValue(func() func() dispatch.Ownership { return filled(open, 1_000_000, perWindow) })
	none := sync.OnceValue(func() func() dispatch.Ownership { return filled(open, 0, perWindow) })
	return row{
		layer: "change of process", title: fmt.Sprintf("%s, %s: to the first handler of the next process", engine, layout),
		variants: []variant{{name: "1,000,000 keys done above the floor, within 1 s"}, {name: "none done above the floor"}},
		whole: func() []float64 {
			return []float64{float64(begin(many()(), nil)), float64(begin(none()(), nil))}
		},
	}
}

// filled returns a group whose only partition has a stuck record and, done behind it, one of each of n keys.
func filled(open func(keys int, perWindow bool) func() dispatch.Ownership, n int, perWindow bool) func() dispatch.Ownership {
	group := open(n, perWindow)
	if n > 0 {
		var done atomic.Int64
		begin(group(), func() bool { return done.Add(1) == int64(n) })
	}
	return group
}

// begin consumes until stuck's handler runs and, if there is an other, until that has said so of a record of another key. It returns
// when stuck's handler began. It tells the dispatcher to drain and waits until it has.
func begin(group dispatch.Ownership, other func() (last bool)) time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	start, began := time.Now(), atomic.Int64{}
	must(0, must(dispatch.NewConsumer(group, dispatch.Config{
		MaxInFlight: pgWorkers, MaxBuffered: 8 * 1024, DeadLetter: dispatch.Discard, DrainTimeout: 3 * time.Second,
		Handler: func(handler context.Context, job dispatch.Job) error {
			if job.Record.Domain == stuck {
				began.CompareAndSwap(0, int64(time.Since(start)))
				if other == nil {
					cancel()
				}
				<-handler.Done()
				return handler.Err()
			}
			if other != nil && other() {
				time.AfterFunc(time.Second, cancel) // by then the last is written
			}
			return nil
		},
	})).Run(ctx))
	if began.Load() == 0 {
		exit("the first record was not handled within ten minutes")
	}
	return time.Duration(began.Load())
}

func openStartPostgres(keys int, perWindow bool) func() dispatch.Ownership {
	ctx, run := context.Background(), "start "+runName()
	outbox := must(leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: postgres(), Name: run, Partitions: 1}))
	all := []dispatch.Record{{Domain: stuck}}
	for i := range keys {
		all = append(all, dispatch.Record{Domain: "key-" + strconv.Itoa(i)})
	}
	enqueue(outbox, all)
	return func() dispatch.Ownership {
		return must(leasepg.OpenGroup(ctx, leasepg.GroupConfig{Conn: postgres().Config().ConnConfig, Group: run, Outbox: outbox,
			Ledger: lease.Config{MaxRetries: lease.DefaultRetries}, Journal: perWindow}))
	}
}

func openStartJetstream(keys int, perWindow bool) func() dispatch.Ownership {
	ctx, run := context.Background(), "START"+runName()
	js := publisher()
	stream := must(js.CreateStream(ctx, jetstream.StreamConfig{Name: run, Subjects: []string{run + ".>"}}))
	publish(js, stream, 1+keys, func(i int) string {
		if i == 0 {
			return run + ".0." + stuck
		}
		return run + ".0.key-" + strconv.Itoa(i)
	})
	return func() dispatch.Ownership {
		return must(leasenats.OpenGroup(ctx, leasenats.GroupConfig{
			Conn: jetStream(), Stream: run, Subject: run + ".*.>", Partitions: 1, Bucket: run, Session: 2 * time.Second,
			Ledger: lease.Config{MaxRetries: lease.DefaultRetries}, Journal: perWindow, Domain: lastToken,
		}))
	}
}
