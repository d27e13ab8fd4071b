// Orders is a pipeline of several processes, which are killed and frozen while they work, and which then shows that nothing was lost, doubled or
// turned around.
//
// Order events of many customers lie in a JetStream stream, which the server parts by customer. The replicas share the partitions out
// (leasenats.Group) and work them off (dispatch.Consumer): their ledgers, their positions and the effects of their handlers live in
// JetStream too. Handlers fail and panic. One replica is killed with SIGKILL, one joins, one is frozen for longer than the others wait, and one sends
// itself SIGKILL in the middle of a handler, behind its effect and before anybody knows of it. An audit then reads the effects:
// every order once, in order for each customer, under rising tokens. Exit code 1 says that it is not so.
//
// The server runs inside the process, on a port of the loopback, and keeps its files in -dir. With NATS_URL set a real one is used; what was made
// there is removed after an audit that went well.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// options are the flags. A replica gets those of its parent.
type options struct {
	orders, customers, workers, replicas, partitions int
	session                                          time.Duration
	dir, run                                         string
	replica                                          int
}

func main() {
	var o options
	flag.IntVar(&o.orders, "orders", 10_000, "order events")
	flag.IntVar(&o.customers, "customers", 1_000, "customers")
	flag.IntVar(&o.replicas, "replicas", 3, "processes at the beginning, at least 3: three of them come to harm, and one joins")
	flag.IntVar(&o.partitions, "partitions", 12, "parts of the stream that the replicas share out")
	flag.IntVar(&o.workers, "workers", 16, "handlers at once in each replica")
	flag.DurationVar(&o.session, "session", 2*time.Second, "how long a replica may be silent before others take its partitions")
	flag.StringVar(&o.dir, "dir", "", "directory for the embedded server; empty: a temporary one, removed after an audit that went well")
	flag.StringVar(&o.run, "run", fmt.Sprintf("%08x", rand.Uint32()), "name of this run in the server")
	flag.IntVar(&o.replica, "replica", 0, "be the replica of this number; 0: start them")
	flag.Parse()
	do := parent
	if o.replica > 0 {
		do = work
	}
	if err := do(o); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

// parent fills the stream, lets the replicas work and come to harm, and audits.
func parent(o options) (failed error) {
	if o.replicas < 3 {
		return fmt.Errorf("-replicas is %d; allowed: 3 or more", o.replicas)
	}
	ctx := context.Background()
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
	return withServer(o, func(s *services) error {
		began := time.Now()
		if err := s.fill(ctx, o); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
		fmt.Printf("%d orders of %d customers published in %v, in %d partitions\n", o.orders, o.customers, time.Since(began).Round(time.Millisecond), o.partitions)
		if err := s.story(ctx, o); err != nil {
			return err
		}
		if err := s.audit(ctx, o); err != nil {
			return err
		}
		return s.remove(ctx)
	})
}

// story is what happens to the replicas, each time when some more of the orders are done.
func (s *services) story(ctx context.Context, o options) error {
	began := time.Now()
	f := &fleet{o: o, url: s.url}
	defer f.end()
	for range o.replicas {
		if err := f.start(); err != nil {
			return err
		}
	}
	fmt.Printf("replicas 1 to %d work\n", o.replicas)
	say := func(text string, replica int) {
		fmt.Printf("%6v  replica %d %s\n", time.Since(began).Round(100*time.Millisecond), replica, text)
	}
	for part, act := range []func() error{
		func() error { say("is killed", 1); return f.kill(1) },
		func() error { say("joins", o.replicas+1); return f.start() },
		func() error { say("is frozen", 2); return f.freeze(2) },
		func() error { say("will kill itself in a handler, behind the effect", 3); return f.crash(3) },
		func() error {
			select { // until the others have what it had
			case <-time.After(2 * o.session):
			case <-ctx.Done():
			}
			say("goes on, too late", 2)
			return f.thaw(2)
		},
	} {
		if err := s.await(ctx, o.orders*(part+1)/6); err != nil {
			return err
		}
		if err := act(); err != nil {
			return err
		}
	}
	if err := s.await(ctx, o.orders); err != nil {
		return err
	}
	fmt.Printf("%6v  all %d orders are done\n", time.Since(began).Round(100*time.Millisecond), o.orders)
	return f.leave()
}

// await waits until so many effects are there: each is one message in the stream under their bucket.
func (s *services) await(ctx context.Context, effects int) error {
	for until := time.Now().Add(2 * time.Minute); ; {
		stream, err := s.js.Stream(ctx, "KV_"+s.effects)
		if err != nil {
			return err
		}
		switch n := stream.CachedInfo().State.LastSeq; {
		case n >= uint64(effects):
			return nil
		case time.Now().After(until):
			return errors.New("two minutes without enough progress")
		}
		time.Sleep(20 * time.Millisecond)
	}
}
