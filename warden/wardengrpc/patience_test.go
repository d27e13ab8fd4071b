// SPDX-License-Identifier: Apache-2.0

// A client that keeps others waiting, by what it sends slowly or reads slowly, is what takes the time, and whom that tires has not failed.

package wardengrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardengrpc"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// patient is how long the dependency waits for a message to come or to be taken: most of it, on a busy machine too.
const patient = 3 * time.Second

// tiring is a dependency whose streams end so when its patience does.
func tiring(code codes.Code) *service {
	within := func(do func() error) error {
		done := make(chan error, 1)
		go func() { done <- do() }()
		select {
		case err := <-done:
			return err
		case <-time.After(patient):
			return status.Error(code, "too late")
		}
	}
	return &service{
		in: func(ss pb.TestService_StreamingInputCallServer) error {
			return within(func() error { return drain(ss, nil) })
		},
		out: func(ss pb.TestService_StreamingOutputCallServer) error {
			return within(func() error { return pour(ss) })
		},
		duplex: func(ss pb.TestService_FullDuplexCallServer) error {
			return within(func() error { return drain(ss, nil) })
		},
	}
}

// pour sends until it cannot.
func pour(ss grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) (err error) {
	for err == nil {
		err = ss.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 64<<10)}})
	}
	return err
}

// A gateway passes on what its client sends, or what he asks for.
type gateway struct {
	asks pb.TestServiceClient // of the dependency, in the compartment

	beside pb.TestServiceClient // of the dependency, in none
	http   *http.Client         // of its HTTP part
	url    string
}

func (g gateway) service() *service {
	return &service{
		in: func(ss pb.TestService_StreamingInputCallServer) error {
			if len(metadata.ValueFromIncomingContext(ss.Context(), "to")) > 0 {
				return g.stores(ss)
			}
			out, err := g.asks.StreamingInputCall(ss.Context())
			for err == nil {
				var m *pb.StreamingInputCallRequest
				if m, err = ss.Recv(); err == nil {
					err = out.Send(m)
				}
			}
			if errors.Is(err, io.EOF) { // of either side
				_, err = out.CloseAndRecv()
			}
			return err
		},
		out: func(ss pb.TestService_StreamingOutputCallServer) error {
			in, err := g.asks.StreamingOutputCall(ss.Context(), &pb.StreamingOutputCallRequest{})
			for err == nil {
				var m *pb.StreamingOutputCallResponse
				if m, err = in.Recv(); err == nil {
					err = ss.Send(m)
				}
			}
			return err
		},
		duplex: func(ss pb.TestService_FullDuplexCallServer) error {
			both, err := g.asks.FullDuplexCall(ss.Context())
			if err != nil {
				return err
			}
			go func() {
				for {
					m, err := ss.Recv()
					if err != nil || both.Send(m) != nil {
						_ = both.CloseSend()
						return
					}
				}
			}()
			return drain(both, nil)
		},
	}
}

// stores is a gateway's stream whose messages are the body of a request over HTTP.
func (g gateway) stores(ss pb.TestService_StreamingInputCallServer) error {
	r, w := io.Pipe()
	go func() {
		for {
			m, err := ss.Recv()
			if err == nil {
				_, err = w.Write(m.GetPayload().GetBody())
			}
			if err != nil {
				_ = w.CloseWithError(err)
				return
			}
		}
	}()
	defer r.Close()
	return g.post(ss.Context(), r)
}

// post sends a body to the store.
func (g gateway) post(ctx context.Context, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, body)
	if err != nil {
		return err
	}
	resp, err := g.http.Do(req)
	if err == nil {
		resp.Body.Close()
		err = errors.New(resp.Status)
	}
	return status.Errorf(codes.Unavailable, "store: %v", err)
}

func (g gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var err error
	if r.Method == http.MethodGet {
		var in pb.TestService_StreamingOutputCallClient
		in, err = g.asks.StreamingOutputCall(r.Context(), &pb.StreamingOutputCallRequest{})
		for err == nil {
			var m *pb.StreamingOutputCallResponse
			if m, err = in.Recv(); err == nil {
				_, err = w.Write(m.GetPayload().GetBody())
			}
		}
		return
	}
	out, err := g.asks.StreamingInputCall(r.Context())
	buf := make([]byte, 100)
	for err == nil {
		var n int
		if n, err = r.Body.Read(buf); n > 0 && err == nil {
			err = out.Send(&pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: buf[:n]}})
		}
	}
	if errors.Is(err, io.EOF) {
		_, err = out.CloseAndRecv()
	}
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
	}
}

// trickle sends little messages until it cannot.
func trickle[T any](s interface{ Send(T) error }, m T) {
	for s.Send(m) == nil {
		time.Sleep(patient / 20)
	}
}

var (
	piece = &pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: []byte("x")}}
	word  = &pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte("x")}}
)

// slow are clients of a gateway: of gRPC, and of HTTP at this address.
var slow = map[string]func(t *testing.T, c pb.TestServiceClient, addr string){
	"an upload": func(t *testing.T, c pb.TestServiceClient, _ string) {
		stream := must(c.StreamingInputCall(t.Context()))(t)
		trickle(stream, piece)
		_ = stream.RecvMsg(new(pb.StreamingInputCallResponse))
	},
	"an upload through a gateway that knows no kinds": func(t *testing.T, c pb.TestServiceClient, _ string) {
		stream := must(c.FullDuplexCall(t.Context()))(t)
		trickle(stream, word)
		_ = drain(stream, nil)
	},
	"a download": func(t *testing.T, c pb.TestServiceClient, _ string) {
		stream := must(c.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{}))(t)
		time.Sleep(2 * patient) // he does not read
		_ = drain(stream, nil)
	},
	"an upload over HTTP": func(t *testing.T, _ pb.TestServiceClient, addr string) {
		overHTTP(t, addr, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n", func(conn net.Conn) {
			for err := error(nil); err == nil; _, err = fmt.Fprint(conn, "x") {
				time.Sleep(patient / 20)
			}
		})
	},
	"an upload to a store over HTTP": func(t *testing.T, c pb.TestServiceClient, _ string) {
		stream := must(c.StreamingInputCall(metadata.AppendToOutgoingContext(t.Context(), "to", "store")))(t)
		trickle(stream, piece)
		_ = stream.RecvMsg(new(pb.StreamingInputCallResponse))
	},
	"a download over HTTP": func(t *testing.T, _ pb.TestServiceClient, addr string) {
		overHTTP(t, addr, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", func(net.Conn) {})
	},
}

// overHTTP sends a request and more, and reads nothing for a long time.
func overHTTP(t *testing.T, addr, request string, more func(net.Conn)) {
	conn := must(net.Dial("tcp", addr))(t)
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	fmt.Fprint(conn, request)
	go more(conn)
	time.Sleep(2 * patient)
	_, _ = io.Copy(io.Discard, conn)
}

// lab is a gateway with its slow client's ways in.
type lab struct {
	*guard
	breaker *breaker
	gateway gateway
	others  pb.TestServiceClient // who has not crashed answers others, in another compartment
	client  pb.TestServiceClient
	addr    string // of its HTTP part
}

// newLab has a compartment with this Timeout before the dependency; its store over HTTP is as patient as all.
func newLab(t *testing.T, s *service, timeout time.Duration) *lab {
	t.Helper()
	l := &lab{guard: newGuard(t, 10, 0), breaker: &breaker{}}
	cfg := bulkhead.CompartmentConfig{Guaranteed: 5, Max: 9, Breaker: l.breaker, Timeout: timeout}
	c := newCompartments(t, cfg).Compartment("unary")
	slots := mustNew(t, nil, wardengrpc.Config{Compartment: func(context.Context, string) *bulkhead.Compartment { return c }})
	dependency, beside := serve(t, s), mustNew(t, newGuard(t, 10, 0).Warden, wardengrpc.Config{})
	l.others = pb.NewTestServiceClient(dial(t, dependency, through(beside)...))
	// a reader who does not read is soon noticed
	small := grpc.WithStaticStreamWindowSize(64 << 10)
	g := gateway{asks: pb.NewTestServiceClient(dial(t, dependency, append(through(slots), small)...))}
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(patient))
		if n, err := io.Copy(io.Discard, r.Body); err == nil && n > 0 {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(store.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	rt := must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{
		Base: base, Compartment: func(*http.Request) *bulkhead.Compartment { return c },
	}))(t)
	g.http, g.url = &http.Client{Transport: rt}, store.URL
	g.beside = l.others
	l.gateway = g
	front := serve(t, g.service(), under(mustNew(t, l.Warden, wardengrpc.Config{}))...)
	l.client = pb.NewTestServiceClient(dial(t, front, small))
	mw := must(wardenhttp.New(l.Warden, wardenhttp.Config{}))(t)
	web := httptest.NewUnstartedServer(mw.Handler(g))
	web.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		_ = conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
		return ctx
	}
	web.Start()
	t.Cleanup(web.Close)
	l.addr = web.Listener.Addr().String()
	return l
}

// A stranger who sends or reads so slowly that a dependency, or its compartment, gives up keeps nobody else from it.
func TestADependencyThatLosesPatience(t *testing.T) {
	var all sync.WaitGroup
	defer all.Wait()
	for name, ask := range slow {
		for _, code := range []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.OK} {
			s, timeout := tiring(code), time.Duration(0)
			if code == codes.OK { // it is the compartment that ends them
				s, timeout = tiring(codes.Canceled), patient
			}
			l := newLab(t, s, timeout)
			over := make(chan struct{})
			all.Go(func() {
				defer close(over)
				ask(t, l.client, l.addr)
			})
			all.Go(func() {
				for done := false; !done; {
					_ = kinds["unary"](t.Context(), l.others)
					select {
					case <-over:
						done = true
					case <-time.After(patient / 10):
					}
				}
				until(t, "end", func() bool { return l.Limiter().Stats().Running == 0 })
				l.wantInnocent(t, fmt.Sprintf("%s, %s", name, code))
			})
		}
	}
}

// wantInnocent checks that nobody has failed, as the compartment's breaker and the gateway's limiter were told.
func (l *lab) wantInnocent(t *testing.T, what string) {
	t.Helper()
	excluded := 0
	l.breaker.mu.Lock()
	defer l.breaker.mu.Unlock()
	for _, err := range l.breaker.told {
		switch {
		case err != nil && !bulkhead.IsExcluded(err):
			t.Errorf("H14: %s: the breaker was told %v", what, err)
		case err != nil:
			excluded++
		}
	}
	if n := l.Limiter().Stats().Failed; excluded != 1 || n != 0 {
		t.Errorf("H14: %s: %d ends excused, and the gateway failed %d times", what, excluded, n)
	}
}

// Clients who are slow excuse nobody who hangs or dies for another reason.
func TestASlowClientExcusesNothingElse(t *testing.T) {
	hangs := serving(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	hangs.in = func(ss pb.TestService_StreamingInputCallServer) error {
		<-ss.Context().Done()
		return ss.Context().Err()
	}
	for name, handle := range map[string]func(g gateway, ss pb.TestService_FullDuplexCallServer) error{
		"a stream whose client waits for an answer": func(g gateway, ss pb.TestService_FullDuplexCallServer) error {
			return g.service().duplex(ss)
		},
		"a stream whose client waits, while others leave": func(g gateway, ss pb.TestService_FullDuplexCallServer) error {
			gone, leave := context.WithCancel(ss.Context())
			defer leave()
			go func() { // canceled is no answer
				one, cancel := context.WithTimeoutCause(gone, patient/10, context.Canceled)
				defer cancel()
				_ = kinds["unary"](one, g.beside)
			}()
			return g.service().duplex(ss)
		},
		"a message of its own, sent whole": func(g gateway, ss pb.TestService_FullDuplexCallServer) error {
			go func() { _ = drain(ss, nil) }()
			out := must(g.asks.StreamingInputCall(ss.Context()))(t)
			noError(t, out.Send(piece))
			_, err := out.CloseAndRecv()
			return err
		},
		"a unary call beside": func(g gateway, ss pb.TestService_FullDuplexCallServer) error {
			go func() { _ = drain(ss, nil) }()
			return kinds["unary"](ss.Context(), g.asks)
		},
		"a small request beside": func(g gateway, ss pb.TestService_FullDuplexCallServer) error {
			go func() { _ = drain(ss, nil) }()
			return g.post(ss.Context(), strings.NewReader("small"))
		},
		"an upload beside that nobody takes": func(g gateway, ss pb.TestService_FullDuplexCallServer) error {
			go func() { _ = drain(ss, nil) }()
			out := must(g.asks.StreamingInputCall(ss.Context()))(t)
			for out.Send(&pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: make([]byte, 64<<10)}}) == nil {
			}
			_, err := out.CloseAndRecv()
			return err
		},
		"an upload of all that there was": func(g gateway, ss pb.TestService_FullDuplexCallServer) error {
			_, err := ss.Recv()
			out := must(g.asks.StreamingInputCall(ss.Context()))(t)
			noError(t, errors.Join(err, out.Send(piece)))
			_, err = out.CloseAndRecv()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, hangs, patient/2)
			g := l.gateway
			s := &service{duplex: func(ss pb.TestService_FullDuplexCallServer) error { return handle(g, ss) }}
			stream := must(served(t, s, mustNew(t, l.Warden, wardengrpc.Config{})).FullDuplexCall(t.Context()))(t)
			noError(t, stream.Send(word))
			err := drain(stream, nil)
			if told := l.breaker.only(t); told == nil || bulkhead.IsExcluded(told) {
				t.Errorf("H14: the breaker was told %v, the client %v", told, err)
			}
		})
	}
}
