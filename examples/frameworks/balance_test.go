// What load reports are for: of four gRPC servers with a warden each one has a slow database, and grpc-go's weighted round robin,
// which reads the reports, sends it less. In virtual time, over connections in memory.

package frameworks_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/weightedroundrobin" // registers it
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

const fleet = 4 // servers; the number 0 is the slow one

// inMemory is a connection in memory whose address tells its server from others.
type inMemory struct {
	net.Conn
	addr
}

func (c inMemory) RemoteAddr() net.Addr { return c.addr }

type addr int

func (addr) Network() string  { return "memory" }
func (a addr) String() string { return fmt.Sprint("server-", int(a)) }

// database answers calls on four connections.
type database struct {
	pb.UnimplementedTestServiceServer
	conns chan struct{} // in use
	query time.Duration
}

func (d *database) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	select {
	case d.conns <- struct{}{}:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	time.Sleep(d.query)
	<-d.conns
	return &pb.SimpleResponse{}, nil
}

func (d *database) stats() monitor.PoolStats {
	return monitor.PoolStats{InUse: len(d.conns), Max: cap(d.conns)}
}

// serve starts d under a warden that reports its load, until stop.
func (d *database) serve(t *testing.T, l net.Listener) (stop func()) {
	t.Helper()
	w, err := warden.New(warden.Config{Pools: []monitor.Pool{{Name: "database", Stats: d.stats}}})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := wardengrpc.New(w, wardengrpc.Config{
		LoadReports: true,
		Trusted:     func(context.Context, string) bool { return true }, // here nobody else can connect
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := grpc.NewServer(grpc.ChainUnaryInterceptor(guard.UnaryServer()), grpc.WaitForHandlers(true))
	pb.RegisterTestServiceServer(s, d)
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	running.Go(func() { _ = s.Serve(l) })
	return func() { s.Stop(); cancel(); running.Wait() }
}

// Round robin would send the slow server as much as any other; the reports move what it cannot answer.
func TestReportsMoveLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, state := manual.NewBuilderWithScheme("fleet"), resolver.State{}
		listeners := map[string]*bufconn.Listener{}
		for i := range fleet {
			d := &database{conns: make(chan struct{}, 4), query: 40 * time.Millisecond}
			if i == 0 {
				d.query *= 3
			}
			l := bufconn.Listen(1 << 16)
			listeners[addr(i).String()] = l
			state.Addresses = append(state.Addresses, resolver.Address{Addr: addr(i).String()})
			defer d.serve(t, l)()
		}
		r.InitialState(state)
		dial := func(ctx context.Context, name string) (net.Conn, error) {
			var number addr
			if _, err := fmt.Sscanf(name, "server-%d", &number); err != nil {
				return nil, err
			}
			conn, err := listeners[name].DialContext(ctx)
			return inMemory{conn, number}, err
		}
		// Without a blackoutPeriod, reports count only after ten seconds.
		const config = `{"loadBalancingConfig": [{"weighted_round_robin": {"blackoutPeriod": "1s"}}]}`
		conn, err := grpc.NewClient("fleet:///", grpc.WithResolvers(r), grpc.WithDefaultServiceConfig(config),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var mu sync.Mutex // guards calls
		var calls [fleet]int
		var all sync.WaitGroup
		for due := time.Duration(0); due < 15*time.Second; due += time.Second / 300 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				var to peer.Peer
				_, _ = pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{}, grpc.Peer(&to))
				mu.Lock()
				defer mu.Unlock()
				if i, sent := to.Addr.(addr); sent && due >= 5*time.Second {
					calls[i]++
				}
			})
			time.Sleep(time.Second / 300)
		}
		all.Wait()
		for i, others := range calls[1:] {
			if calls[0]*3 > others*2 || calls[0] == 0 {
				t.Errorf("the slow server got %d calls, and server %d %d", calls[0], i+1, others)
			}
		}
		t.Log(calls)
	})
}
