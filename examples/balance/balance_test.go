// The fleet in virtual time, over connections in memory: real servers, real wardens and grpc-go's own balancers.

package main

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inMemory is a listener that its address tells from others, and so do its connections.
type inMemory struct {
	*bufconn.Listener
	addr
}

func (l inMemory) Addr() net.Addr { return l.addr }

type addr string

func (addr) Network() string  { return "memory" }
func (a addr) String() string { return string(a) }

// to is a client's connection.
type to struct {
	net.Conn
	addr
}

func (c to) RemoteAddr() net.Addr { return c.addr }

// ran is what became of a load.
func ran(t *testing.T, b balancer, l load) (counts perServer) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		listeners := map[string]inMemory{}
		f, err := startFleet(t.Context(), func() (net.Listener, error) {
			l := inMemory{bufconn.Listen(1 << 16), addr(fmt.Sprintf("server-%d", len(listeners)))}
			listeners[l.String()] = l
			return l, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		counts, err = f.run(b, l, grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
			conn, err := listeners[name].DialContext(ctx)
			return to{conn, addr(name)}, err
		}))
		f.stop()
		if err != nil {
			t.Fatal(err)
		}
	})
	return counts
}

// TestReportsMoveLoad: round robin sends the slow server as much as any other, and it cannot answer all of that; the reports
// move what it cannot.
func TestReportsMoveLoad(t *testing.T) {
	l := load{perSecond: 300, warmUp: 5 * time.Second, length: 10 * time.Second}
	blind, told := ran(t, roundRobin, l), ran(t, weightedRoundRobin, l)
	t.Logf("calls and answers of the slow server and the others: %v by round robin, %v by reports", blind, told)
	for i, others := range told[1:servers] {
		if told[0].calls >= others.calls || told[0].calls == 0 {
			t.Errorf("the slow server got %d calls, and server %d %d", told[0].calls, i+1, others.calls)
		}
	}
	refused := func(of count) int { return of.calls - of.answered }
	if refused(told[0])*3 > refused(blind[0]) || refused(told.sum())*3 > refused(blind.sum()) {
		t.Errorf("%v is not a third of what is not answered in %v", told, blind)
	}
}
