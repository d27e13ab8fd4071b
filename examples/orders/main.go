// Orders is a pipeline of several processes, which are killed and frozen while they work, and which then shows that nothing was lost, doubled or
// turned around.
//
// Order events of many customers lie in partitions. The replicas are members of a group that shares the partitions out, and work them off by a
// dispatch.Consumer each. Handlers fail and panic. One replica is killed with SIGKILL, one joins, one is frozen for longer than the others wait, and one sends
// itself SIGKILL in the middle of a handler, behind its effect and before anybody knows of it. An audit then reads the effects:
// every order once, in order for each customer, under rising tokens. Exit code 1 says that it is not so.
//
// All of that is the same on three engines:
//
//	-engine    records            group                  ledgers, effects   the server
//	nats       a stream           leasenats.Group        buckets            in the process, its files in -dir; or that of NATS_URL
//	postgres   a table            leasepg.Ownership      tables             private, from what is installed; or that of STOPBANK_POSTGRES_URL
//	kafka      a topic            leasekafka.Group       as with nats       a fake broker in a process of its own; or those of KAFKA_BROKERS
//
// What was made on a server that is not its own is removed after an audit that went well; a database always is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"
)

// options are the flags. A replica gets those of its parent.
type options struct {
	orders, customers, workers, replicas, partitions int
	session                                          time.Duration
	engine, dir, run                                 string
	replica                                          int
	servers                                          string // what the engine connects to
}

func main() {
	var o options
	flag.StringVar(&o.engine, "engine", "nats", "nats, postgres or kafka")
	flag.IntVar(&o.orders, "orders", 10_000, "order events")
	flag.IntVar(&o.customers, "customers", 1_000, "customers")
	flag.IntVar(&o.replicas, "replicas", 3, "processes at the beginning, at least 3: three of them come to harm, and one joins")
	flag.IntVar(&o.partitions, "partitions", 12, "parts of the stream that the replicas share out, more than -replicas: each is to have one before any comes to harm")
	flag.IntVar(&o.workers, "workers", 16, "handlers at once in each replica")
	flag.DurationVar(&o.session, "session", 2*time.Second, "how long a replica may be silent before others take its partitions; at least 6 s with KAFKA_BROKERS")
	flag.StringVar(&o.dir, "dir", "", "directory for the embedded JetStream; empty: a temporary one, removed after an audit that went well")
	flag.StringVar(&o.run, "run", fmt.Sprintf("%08x", rand.Uint32()), "name of this run in the server")
	flag.IntVar(&o.replica, "replica", 0, "be the replica of this number; 0: start them")
	broker := flag.Bool("fake-broker", false, "be a broker that keeps everything in memory, until standard input ends")
	flag.Parse()
	o.servers = os.Getenv(childEnv)
	var err error
	switch {
	case *broker:
		err = fakeBroker()
	case o.replica > 0:
		err = work(o)
	default:
		err = parent(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// parent publishes the orders, lets the replicas work and come to harm, and audits.
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
	s, err := engines[o.engine].serve(ctx, o)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, s.stop()) }()
	o.servers, o.session = s.at, max(o.session, s.session)
	e, err := engines[o.engine].connect(ctx, o)
	if err != nil {
		return err
	}
	defer e.close()
	fmt.Println("on", s.about)
	if err := e.prepare(ctx, o); err != nil {
		return err
	}
	effects, err := e.register(ctx)
	if err != nil {
		return err
	}
	if err := story(ctx, o, e, effects); err != nil {
		return err
	}
	if err := audit(ctx, o, effects); err != nil {
		return err
	}
	return e.remove(ctx)
}

// story is what happens to the replicas, each time when some more of the orders are done, and never by the clock: when all that was published
// is done, others have what the dead or frozen one had. Who is frozen, is to kill itself, or wakes up, finds new orders. All have partitions before
// any comes to harm.
func story(ctx context.Context, o options, e engine, effects register) error {
	f := &fleet{o: o}
	defer f.end()
	for range o.replicas {
		if err := f.start(); err != nil {
			return err
		}
	}
	if err := f.settled(ctx); err != nil {
		return err
	}
	sixths := func(n int) int { return o.orders * n / 6 }
	began := time.Now()
	if err := e.publish(ctx, o, 0, sixths(3)); err != nil {
		return err
	}
	fmt.Printf("%d orders of %d customers published in %v, in %d partitions\n", sixths(3), o.customers, time.Since(began).Round(time.Millisecond), o.partitions)
	began = time.Now()
	say := func(text string, replica int) {
		fmt.Printf("%6v  replica %d %s\n", time.Since(began).Round(100*time.Millisecond), replica, text)
	}
	for part, act := range []func() error{
		func() error { say("is killed", 1); return f.kill(1) },
		func() error { say("joins", o.replicas+1); return errors.Join(f.start(), f.settled(ctx)) },
		func() error {
			say("is frozen", 2)
			return errors.Join(e.publish(ctx, o, sixths(3), sixths(4)), f.freeze(2))
		},
		func() error {
			say("will kill itself in a handler, behind the effect", 3)
			return errors.Join(f.crash(3), e.publish(ctx, o, sixths(4), sixths(5)))
		},
		func() error {
			say("goes on, too late", 2)
			return errors.Join(f.thaw(2), e.publish(ctx, o, sixths(5), o.orders))
		},
	} {
		if err := await(ctx, effects, sixths(part+1)); err != nil {
			return err
		}
		if err := act(); err != nil {
			return err
		}
	}
	if err := await(ctx, effects, o.orders); err != nil {
		return err
	}
	fmt.Printf("%6v  all %d orders are done\n", time.Since(began).Round(100*time.Millisecond), o.orders)
	return f.leave()
}

// await waits until so many effects are there. A server that is too busy to say is asked again.
func await(ctx context.Context, effects register, many int) error {
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		switch n, err := effects.swaps(ctx); {
		case err == nil && n >= many:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(until):
			return errors.Join(fmt.Errorf("two minutes without enough progress: %d effects, not yet %d", n, many), err)
		}
	}
}
