// SPDX-License-Identifier: Apache-2.0

// What the tests share: a real server on a real connection, with a service whose methods the test says.

package wardengrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

func TestMain(m *testing.M) {
	encoding.RegisterCodec(noCodec{})
	goleak.VerifyTestMain(m)
}

// guard is a warden that does not change its mind, and tells when a task starts and ends.
type guard struct {
	*warden.Warden
	started, ended chan struct{}
	tasks          atomic.Pointer[warden.Task] // of the task that came last
	starts, ends   atomic.Int64
}

// ruling decides as it did before.
type ruling decision.ControlDecision

func (r ruling) Step(monitor.Sample) decision.ControlDecision { return decision.ControlDecision(r) }

// newGuard returns one that lets so many run and so many wait; 0: whoever would have to wait is shed.
func newGuard(t testing.TB, target, queue int) *guard {
	t.Helper()
	g := &guard{started: make(chan struct{}, 10_000), ended: make(chan struct{}, 10_000)}
	d := decision.ControlDecision{
		Seq: 7, TargetConcurrency: target, Reasons: []decision.Reason{decision.NewReason("test", "none", 0, decision.Hold)},
	}
	if queue == 0 {
		d.ShedProbability = 1
	}
	w := must(warden.New(warden.Config{
		Controller: ruling(d), Interval: 10 * time.Millisecond, Limiter: limiter.Config{Initial: d, MaxQueue: queue, Observer: g},
	}))(t)
	g.Warden = w
	return g
}

func (g *guard) Observe(e limiter.Event) {
	task := e.Task
	g.tasks.Store(&task)
	switch e.Outcome {
	case decision.Started:
		g.starts.Add(1)
		g.started <- struct{}{}
	case decision.Executed:
		g.ends.Add(1)
		g.ended <- struct{}{}
	}
}

// await fails the test if what it waits for does not come: nothing that is awaited takes long.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// wantRunning checks how many slots are held.
func (g *guard) wantRunning(t testing.TB, want int) {
	t.Helper()
	if s := g.Limiter().Stats(); s.Running != want {
		t.Errorf("%d slots are held, want %d", s.Running, want)
	}
}

// service does what the test says.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error)
	out    func(pb.TestService_StreamingOutputCallServer) error
	in     func(pb.TestService_StreamingInputCallServer) error
	duplex func(pb.TestService_FullDuplexCallServer) error
	calls  atomic.Int64
}

func (s *service) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	s.calls.Add(1)
	if s.unary == nil {
		return &pb.SimpleResponse{}, nil
	}
	return s.unary(ctx, r)
}

func (s *service) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, ss pb.TestService_StreamingOutputCallServer) error {
	s.calls.Add(1)
	return s.out(ss)
}

func (s *service) StreamingInputCall(ss pb.TestService_StreamingInputCallServer) error {
	s.calls.Add(1)
	return s.in(ss)
}

func (s *service) FullDuplexCall(ss pb.TestService_FullDuplexCallServer) error {
	s.calls.Add(1)
	return s.duplex(ss)
}

// serving is a service whose unary calls and streams do this.
func serving(do func(ctx context.Context) error) *service {
	return &service{
		unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return &pb.SimpleResponse{}, do(ctx)
		},
		duplex: func(ss pb.TestService_FullDuplexCallServer) error { return do(ss.Context()) },
	}
}

// kinds are a call and a stream, from their beginning to their end.
var kinds = map[string]func(context.Context, pb.TestServiceClient, ...grpc.CallOption) error{
	"unary": func(ctx context.Context, c pb.TestServiceClient, opts ...grpc.CallOption) error {
		_, err := c.UnaryCall(ctx, &pb.SimpleRequest{}, opts...)
		return err
	},
	"stream": func(ctx context.Context, c pb.TestServiceClient, opts ...grpc.CallOption) error {
		stream, err := c.FullDuplexCall(ctx, opts...)
		return drain(stream, err)
	},
}

// receiver is what streams with many answers have.
type receiver[T any] interface{ Recv() (T, error) }

func drain[T any](s receiver[T], err error) error {
	for err == nil {
		_, err = s.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// until waits for something that has no event, such as a call that begins to wait; it fails the test if it does not come. It is less
// patient than who looks, after half a minute, whether a stream works.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}

// acquire takes a slot until the test ends.
func acquire(t testing.TB, c *bulkhead.Compartment) {
	t.Helper()
	_, p, err := c.Acquire(t.Context())
	noError(t, err)
	t.Cleanup(func() { p.Release(nil) })
}

func mustNew(t testing.TB, w *warden.Warden, cfg wardengrpc.Config) *wardengrpc.Interceptors {
	t.Helper()
	return must(wardengrpc.New(w, cfg))(t)
}

// under is the options of a server whose calls ask i, inside an interceptor that turns panics into errors.
func under(i *wardengrpc.Interceptors) []grpc.ServerOption {
	caught := func(err *error) {
		if v := recover(); v != nil { //nolint:revive // it is deferred itself
			*err = status.Errorf(codes.Internal, "panic: %v", v)
		}
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler,
		) (_ any, err error) {
			defer caught(&err)
			return h(ctx, req)
		}, i.UnaryServer()),
		grpc.ChainStreamInterceptor(func(
			srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler,
		) (err error) {
			defer caught(&err)
			return h(srv, ss)
		}, i.StreamServer()),
	}
}

// serve starts a server with the service and returns its address.
func serve(t testing.TB, s *service, opts ...grpc.ServerOption) string {
	t.Helper()
	server := grpc.NewServer(opts...)
	pb.RegisterTestServiceServer(server, s)
	return start(t, server)
}

// start lets a server serve until the test ends.
func start(t testing.TB, server *grpc.Server) string {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		// before it could serve
		if err := await(t, "end of the server", done); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// dial connects to a server.
func dial(t testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc := must(grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...))(t)
	t.Cleanup(func() { cc.Close() })
	return cc
}

// served is a client of the service behind i.
func served(t testing.TB, s *service, i *wardengrpc.Interceptors) pb.TestServiceClient {
	t.Helper()
	return pb.NewTestServiceClient(dial(t, serve(t, s, under(i)...)))
}

// details are what a status carries.
func details(t testing.TB, err error) (info *errdetails.ErrorInfo, retry *errdetails.RetryInfo) {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retry = d
		default:
			t.Errorf("a detail of type %T", d)
		}
	}
	if info == nil {
		t.Fatalf("%v has no ErrorInfo", err)
	}
	return info, retry
}

// wantRejected checks what a rejected client is told.
func wantRejected(t testing.TB, err error, code codes.Code, reason string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("%v, want %s", err, code)
	}
	info, retry := details(t, err)
	if info.GetReason() != reason || info.GetDomain() != "stopbank/warden" {
		t.Errorf("%v, want %s", info, reason)
	}
	if again := code == codes.ResourceExhausted || reason == "BREAKER_OPEN" || reason == "PRESSURE_HIGH"; again != (retry != nil) {
		t.Errorf("RetryInfo %v with %s", retry, reason)
	}
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
