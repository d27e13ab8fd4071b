// What load reports are for: four gRPC servers with a warden each, of which one has a slow database, get the same load by round
// robin and by grpc-go's weighted round robin, which reads the reports. In virtual time, over connections in memory.

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

// balanced sends 300 calls a second, whether earlier ones were answered or not, and counts what became of them from the sixth
// second to the fifteenth: how many went to each server, and how many of those, and of all, were not answered in half a second.
func balanced(t *testing.T, config string) (calls, failed [fleet]int, lost int) {
	t.Helper()
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
		stop := d.serve(t, l)
		defer stop()
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
	conn, err := grpc.NewClient("fleet:///", grpc.WithResolvers(r), grpc.WithDefaultServiceConfig(config),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var mu sync.Mutex // guards the counts
	var all sync.WaitGroup
	for due := time.Duration(0); due < 15*time.Second; due += time.Second / 300 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			var to peer.Peer
			_, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, &pb.SimpleRequest{}, grpc.Peer(&to))
			mu.Lock()
			defer mu.Unlock()
			if due < 5*time.Second {
				return
			}
			i, sent := to.Addr.(addr)
			if sent {
				calls[i]++
			}
			if err != nil {
				lost++
			}
			if sent && err != nil {
				failed[i]++
			}
		})
		time.Sleep(time.Second / 300)
	}
	all.Wait()
	return calls, failed, lost
}

// Round robin sends the slow server as much as any other, and it cannot answer all of that; the reports move what it cannot.
func TestReportsMoveLoad(t *testing.T) {
	var calls, failed [2][fleet]int
	var lost [2]int
	for i, config := range []string{
		`{"loadBalancingConfig": [{"round_robin": {}}]}`,
		// Without a blackoutPeriod, reports count only after ten seconds.
		`{"loadBalancingConfig": [{"weighted_round_robin": {"blackoutPeriod": "1s"}}]}`,
	} {
		synctest.Test(t, func(t *testing.T) { calls[i], failed[i], lost[i] = balanced(t, config) })
	}
	t.Logf("by round robin and by reports: calls %v, not answered %v, of all %v", calls, failed, lost)
	for i, others := range calls[1][1:] {
		if calls[1][0] >= others || calls[1][0] == 0 {
			t.Errorf("the slow server got %d calls, and server %d %d", calls[1][0], i+1, others)
		}
	}
	if failed[1][0]*3 > failed[0][0] || lost[1]*3 > lost[0] {
		t.Errorf("%v and %v in all is not a third of what is not answered in %v and %v", failed[1], lost[1], failed[0], lost[0])
	}
}
