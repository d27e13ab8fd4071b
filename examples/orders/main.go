// Orders is a pipeline of several processes that are killed and frozen while they work. An audit then shows that no order was
// lost, duplicated or reordered.
//
// Order events of many customers are stored in partitions. The replicas form a consumer group that assigns the partitions, and
// each replica processes its partitions with a dispatch.Consumer. Handlers fail and panic. One replica is killed with SIGKILL,
// one joins, one is frozen for longer than its session timeout, and one kills itself in a handler, after it has written its
// effect and before the ledger records it. The audit checks that every order was applied once, in order for each customer,
// under rising fencing tokens, and that the replica that was frozen took up work again. Exit code 1: the audit or the run failed.
//
// Records, group, ledgers and effects are on JetStream: an embedded server, with its files in -dir, or that of NATS_URL, where the run
// deletes what it created after a successful audit.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// options are the flags; replicas get those of their parent.
type options struct {
	orders, customers, workers, replicas, partitions int
	session                                          time.Duration
	dir, run                                         string
	replica                                          int
	servers                                          string // the server's URL
	rate                                             int    // orders a second
	ops, fault                                       string
	after                                            time.Duration  // from the start of a replica to its faults
	decisions                                        lease.Observer // of a replica's ledgers; nil: none
}

func main() {
	var o options
	flag.IntVar(&o.orders, "orders", 10_000, "`number` of orders")
	flag.IntVar(&o.customers, "customers", 1_000, "`number` of customers")
	flag.IntVar(&o.replicas, "replicas", 3,
		"`number` of replicas at the start, at least 3: three are killed or frozen, and one joins")
	flag.IntVar(&o.partitions, "partitions", 12,
		"`number` of partitions, more than -replicas: each replica gets one before the first fault")
	flag.IntVar(&o.workers, "workers", 16, "maximum `number` of concurrent handlers in each replica")
	flag.DurationVar(&o.session, "session", 2*time.Second,
		"session `timeout` after which others take over the partitions of a replica")
	flag.StringVar(&o.dir, "dir", "",
		"`directory` of the embedded JetStream server; empty: a temporary one, removed after a successful audit")
	flag.StringVar(&o.run, "run", fmt.Sprintf("%08x", rand.Uint32()), "`name` of this run on the server")
	flag.IntVar(&o.replica, "replica", 0, "run as the replica of this `number`; 0: run as the parent, which starts the replicas")
	flag.IntVar(&o.rate, "rate", 0, "publish so many orders a `second` until standard input ends, and leave the replicas to the caller, "+
		"who finds the servers in the first line; 0: run the scenario")
	flag.StringVar(&o.ops, "ops", "", "with -replica: `address` of the metrics; empty: none")
	flag.StringVar(&o.fault, "fault", "", "with -replica: comma-separated `faults` (fault.go)")
	flag.DurationVar(&o.after, "fault-after", 0, "with -replica: `time` from start to the faults")
	flag.Parse()
	o.servers = os.Getenv(childEnv)
	var err error
	if o.replica > 0 {
		err = work(o)
	} else {
		err = parent(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// parent publishes the orders, injects the faults and audits the effects.
func parent(o options) (failed error) {
	if err := o.check(); err != nil {
		return err
	}
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt)
	defer end()
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "orders-")
		if err != nil {
			return err
		}
		o.dir = dir
		defer func() {
			if failed == nil {
				_ = os.RemoveAll(dir)
			}
		}()
	}
	s, err := serve(o)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, s.stop()) }()
	o.servers = s.url
	e, err := connect(o)
	if err != nil {
		return err
	}
	defer e.close()
	fmt.Println("JetStream:", s.about)
	if err := e.prepare(ctx, o); err != nil {
		return err
	}
	effects, err := e.register(ctx)
	if err != nil {
		return err
	}
	if o.rate > 0 {
		return publishUntilEOF(ctx, o, e)
	}
	if err := injectFaults(ctx, o, e, effects); err != nil {
		return err
	}
	if err := audit(ctx, o, effects); err != nil {
		return err
	}
	return e.remove(ctx)
}

// frozen is the replica that is frozen, and thawed when others have its partitions.
const frozen = 2

// injectFaults starts the replicas and injects the next fault whenever another sixth of the orders is done, never by the clock.
// When all published orders are done, other replicas have taken over the partitions of a dead or frozen one. The replicas that
// are frozen, told to crash or thawed find new orders. All replicas have partitions before the first fault, and the thawed one
// has one again before the last orders come.
func injectFaults(ctx context.Context, o options, e *engine, effects register) error {
	f := &fleet{o: o}
	defer f.end()
	for range o.replicas {
		if err := f.start(); err != nil {
			return err
		}
	}
	if err := f.awaitPartitions(ctx); err != nil {
		return err
	}
	sixths := func(n int) int { return o.orders * n / 6 }
	began := time.Now()
	if err := e.publish(ctx, o, 0, sixths(3)); err != nil {
		return err
	}
	fmt.Printf("%d orders of %d customers published in %v, in %d partitions\n", sixths(3), o.customers,
		time.Since(began).Round(time.Millisecond), o.partitions)
	began = time.Now()
	report := func(text string, replica int) {
		fmt.Printf("%6v  replica %d %s\n", time.Since(began).Round(100*time.Millisecond), replica, text)
	}
	for part, inject := range []func() error{
		func() error { report("is killed", 1); return f.kill(1) },
		func() error { report("joins", o.replicas+1); return errors.Join(f.start(), f.awaitPartitions(ctx)) },
		func() error {
			report("is frozen", frozen)
			return errors.Join(e.publish(ctx, o, sixths(3), sixths(4)), f.freeze(frozen))
		},
		func() error {
			report("will kill itself in a handler, after the effect", 3)
			return errors.Join(f.crash(3), e.publish(ctx, o, sixths(4), sixths(5)))
		},
		func() error {
			report("is thawed, after its session timeout", frozen)
			if err := errors.Join(f.thaw(frozen), f.awaitBack(ctx, frozen)); err != nil {
				return err
			}
			return e.publish(ctx, o, sixths(5), o.orders)
		},
	} {
		if err := await(ctx, effects, sixths(part+1)); err != nil {
			return err
		}
		if err := inject(); err != nil {
			return err
		}
	}
	if err := await(ctx, effects, o.orders); err != nil {
		return err
	}
	fmt.Printf("%6v  all %d orders are done\n", time.Since(began).Round(100*time.Millisecond), o.orders)
	return f.leave()
}

// publishUntilEOF says where the servers are, and publishes o.rate orders a second until standard input ends.
func publishUntilEOF(ctx context.Context, o options, e *engine) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	fmt.Printf("servers: %s\n", o.servers)
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for n := 0; ; n += o.rate {
		if err := e.publish(ctx, o, n, n+o.rate); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// await waits until the store has want effects. It retries failed queries, because a server may be too busy to answer.
func await(ctx context.Context, effects register, want int) error {
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		switch n, err := effects.swaps(ctx); {
		case err == nil && n >= want:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(until):
			return errors.Join(fmt.Errorf("%d effects after two minutes, want %d", n, want), err)
		}
	}
}
