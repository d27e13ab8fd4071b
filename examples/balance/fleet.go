// The fleet: four servers on a connection each, and a client that sends calls whether earlier ones were answered or not.

package main

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/weightedroundrobin" // registers it
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

const (
	servers     = 4
	connections = 4
	query       = 40 * time.Millisecond
	slowQuery   = 3 * query // on the server number 0
	useful      = 500 * time.Millisecond
)

// balancer is one of grpc-go's, by its service config.
type balancer struct{ name, config string }

var (
	roundRobin = balancer{"round_robin", `{"loadBalancingConfig": [{"round_robin": {}}]}`}
	// Without a blackoutPeriod, reports count only after ten seconds.
	weightedRoundRobin = balancer{
		"weighted_round_robin", `{"loadBalancingConfig": [{"weighted_round_robin": {"blackoutPeriod": "1s"}}]}`,
	}
)

// fleet are the servers.
type fleet struct {
	listeners []net.Listener
	stop      func() // ends them and waits for that
}

// startFleet starts the servers on listeners of these.
func startFleet(ctx context.Context, listen func() (net.Listener, error)) (*fleet, error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	f := new(fleet)
	var all []*grpc.Server
	f.stop = func() {
		for _, s := range all {
			s.Stop()
		}
		cancel()
		running.Wait()
	}
	for i := range servers {
		s := &server{conns: make(chan struct{}, connections), query: query}
		if i == 0 {
			s.query = slowQuery
		}
		l, err := listen()
		if err == nil {
			var g *grpc.Server
			if g, err = s.protected(ctx, &running); err == nil {
				all, f.listeners = append(all, g), append(f.listeners, l)
				running.Go(func() { _ = g.Serve(l) })
			}
		}
		if err != nil {
			f.stop()
			return nil, err
		}
	}
	return f, nil
}

// server answers a call with what its database says.
type server struct {
	pb.UnimplementedTestServiceServer
	conns   chan struct{} // of the database, in use
	waiting atomic.Int64  // for one
	query   time.Duration
}

// UnaryCall queries the database.
func (s *server) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	s.waiting.Add(1)
	select {
	case s.conns <- struct{}{}:
		s.waiting.Add(-1)
	case <-ctx.Done():
		s.waiting.Add(-1)
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	time.Sleep(s.query)
	<-s.conns
	return &pb.SimpleResponse{}, nil
}

// pool tells the warden how much of the database is in use.
func (s *server) pool() monitor.Pool {
	return monitor.Pool{Name: "database", Stats: func() monitor.PoolStats {
		return monitor.PoolStats{
			InUse: len(s.conns), Max: cap(s.conns), Waiting: monitor.Reading{Value: float64(s.waiting.Load()), OK: true},
		}
	}}
}

// protected returns s under a warden that reports its load.
func (s *server) protected(ctx context.Context, running *sync.WaitGroup) (*grpc.Server, error) {
	w, err := warden.New(warden.Config{Pools: []monitor.Pool{s.pool()}})
	if err != nil {
		return nil, err
	}
	guard, err := wardengrpc.New(w, wardengrpc.Config{
		LoadReports: true,
		Trusted:     func(context.Context, string) bool { return true }, // here nobody else can connect
	})
	if err != nil {
		return nil, err
	}
	running.Go(func() { _ = w.Run(ctx) })
	g := grpc.NewServer(grpc.ChainUnaryInterceptor(guard.UnaryServer()), grpc.WaitForHandlers(true))
	pb.RegisterTestServiceServer(g, s)
	return g, nil
}

// load is an open loop.
type load struct {
	perSecond      int
	warmUp, length time.Duration
}

// count is what became of the calls of one server.
type count struct{ calls, answered int }

// perServer are the counts of the servers, by their number, and of what went to none.
type perServer [servers + 1]count

func (c perServer) sum() (all count) {
	for _, of := range c {
		all.calls += of.calls
		all.answered += of.answered
	}
	return all
}

// run sends the load through a balancer and counts what became of it after the warm-up.
func (f *fleet) run(b balancer, l load, opts ...grpc.DialOption) (counts perServer, err error) {
	r := manual.NewBuilderWithScheme("fleet")
	var state resolver.State
	for _, l := range f.listeners {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: l.Addr().String()})
	}
	r.InitialState(state)
	conn, err := grpc.NewClient("fleet:///", append(
		opts, grpc.WithResolvers(r), grpc.WithDefaultServiceConfig(b.config),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)...)
	if err != nil {
		return counts, err
	}
	client := pb.NewTestServiceClient(conn)
	var mu sync.Mutex // guards counts
	var calls sync.WaitGroup
	began := time.Now()
	for due := time.Duration(0); due < l.warmUp+l.length; due += time.Second / time.Duration(l.perSecond) {
		time.Sleep(time.Until(began.Add(due)))
		calls.Go(func() {
			addr, err := call(client)
			if due < l.warmUp {
				return
			}
			i := slices.IndexFunc(f.listeners, func(l net.Listener) bool { return l.Addr().String() == addr })
			mu.Lock()
			defer mu.Unlock()
			if i < 0 {
				i = servers // its time was up before it was sent
			}
			counts[i].calls++
			if err == nil {
				counts[i].answered++
			}
		})
	}
	calls.Wait()
	return counts, conn.Close()
}

// call asks for an answer while that is useful, and returns the address of the server that it went to.
func call(client pb.TestServiceClient) (addr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), useful)
	defer cancel()
	var to peer.Peer
	_, err = client.UnaryCall(ctx, &pb.SimpleRequest{}, grpc.Peer(&to))
	if to.Addr != nil {
		addr = to.Addr.String()
	}
	return addr, err
}
