// SPDX-License-Identifier: Apache-2.0

// Calls that gRPC does not send for what is in them.

package wardengrpc_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// noCodec makes no message of anything.
type noCodec struct{}

func (noCodec) Marshal(any) ([]byte, error) { return nil, errors.New("no number") }
func (noCodec) Unmarshal([]byte, any) error { return nil }
func (noCodec) Name() string                { return "nocodec" }

// noText is no text in UTF-8.
var noText = &pb.EchoStatus{Message: "\xff"}

// unsent are calls that are not sent.
var unsent = map[string]func(ctx context.Context, c pb.TestServiceClient) error{
	"a value": func(ctx context.Context, c pb.TestServiceClient) error {
		return kinds["unary"](metadata.AppendToOutgoingContext(ctx, "x-name", "caf\xe9"), c)
	},
	"a stream's value": func(ctx context.Context, c pb.TestServiceClient) error {
		return kinds["stream"](metadata.AppendToOutgoingContext(ctx, "x-bin", "caf\xe9", "x-name", "caf\xe9"), c)
	},
	"a key": func(ctx context.Context, c pb.TestServiceClient) error {
		return kinds["unary"](metadata.AppendToOutgoingContext(ctx, "x!name", "cafe"), c)
	},
	"long metadata": func(ctx context.Context, c pb.TestServiceClient) error {
		return kinds["unary"](metadata.AppendToOutgoingContext(ctx, "x-name", strings.Repeat("cafe", 1000)), c)
	},
	"a stream's long metadata": func(ctx context.Context, c pb.TestServiceClient) error {
		return kinds["stream"](metadata.AppendToOutgoingContext(ctx, "x-name", strings.Repeat("cafe", 1000)), c)
	},
	"a message": func(ctx context.Context, c pb.TestServiceClient) error {
		_, err := c.UnaryCall(ctx, &pb.SimpleRequest{ResponseStatus: noText})
		return err
	},
	"a message by a codec of the call's": func(ctx context.Context, c pb.TestServiceClient) error {
		_, err := c.UnaryCall(ctx, &pb.SimpleRequest{ResponseStatus: noText}, grpc.ForceCodecV2(encoding.GetCodecV2("proto")))
		return err
	},
	"what another codec does not take": func(ctx context.Context, c pb.TestServiceClient) error {
		return kinds["unary"](ctx, c, grpc.ForceCodec(noCodec{}))
	},
	"what another codec of that name does not take": func(ctx context.Context, c pb.TestServiceClient) error {
		return kinds["unary"](ctx, c, grpc.CallContentSubtype("nocodec"))
	},
	"a stream's message": func(ctx context.Context, c pb.TestServiceClient) error {
		stream, err := c.FullDuplexCall(ctx)
		if err == nil {
			err = stream.Send(&pb.StreamingOutputCallRequest{ResponseStatus: noText})
		}
		return err
	},
	"the message of a stream that answers": func(ctx context.Context, c pb.TestServiceClient) error {
		_, err := c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{ResponseStatus: noText})
		return err
	},
}

// broken is a compartment with its breaker.
func broken(t *testing.T) (*wardengrpc.Interceptors, *compartments, *breaker) {
	t.Helper()
	b := &breaker{}
	c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: b})
	return mustNew(t, nil, wardengrpc.Config{Compartment: func(context.Context, string) *bulkhead.Compartment {
		return c.Compartment("unary")
	}}), c, b
}

// A gateway's client may have written what a call does not send: it is no failure of who is not asked, nor of the gateway, whatever that
// says of it.
func TestWhatIsNotSent(t *testing.T) {
	dependency := serve(t, echo(), grpc.MaxHeaderListSize(2000))
	slots, asked, asking := broken(t)
	r, caller := newRetry(t, generous, wardengrpc.RetryConfig{Repeatable: repeatable})
	for by, opts := range map[string][]grpc.DialOption{
		"slots": through(slots), "retries": again(r), "both": slices.Concat(again(r), through(slots)),
	} {
		client := pb.NewTestServiceClient(dial(t, dependency, opts...))
		for what, ask := range unsent {
			for words, say := range map[string]func(error) error{
				"passed on":        func(err error) error { return err },
				"in its own words": func(err error) error { return status.Errorf(codes.Internal, "ask: %v", err) },
			} {
				t.Run(by+", "+what+", "+words, func(t *testing.T) {
					g := newGuard(t, 1, 0)
					i, c, b := broken(t)
					s := serving(func(ctx context.Context) error {
						err := ask(ctx, client)
						if !bulkhead.IsExcluded(err) || status.Code(err) != codes.Canceled || errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("H14: the handler has %v", err)
						}
						return say(err)
					})
					front := pb.NewTestServiceClient(dial(t, serve(t, s, append(under(mustNew(t, g.Warden, wardengrpc.Config{})), under(i)...)...)))
					for kind, call := range kinds {
						err := call(t.Context(), front)
						if code := status.Code(err); code != codes.InvalidArgument && words == "passed on" {
							t.Errorf("H14: %s: the client is told %v", kind, err)
						}
						await(t, "end", g.ended)
						await(t, "end", c.ended)
						if err := b.only(t); !bulkhead.IsExcluded(err) {
							t.Errorf("H14: %s: the gateway's breaker was told %v", kind, err)
						}
						if by == "retries" {
							continue
						}
						await(t, "end", asked.ended)
						if err := asking.only(t); !bulkhead.IsExcluded(err) {
							t.Errorf("H14: %s: the dependency's breaker was told %v", kind, err)
						}
					}
					if n := g.Limiter().Stats().Failed; n != 0 {
						t.Errorf("H31: %d failed", n)
					}
				})
			}
		}
	}
	if s := caller.Stats(); s.Calls == 0 || s.Accepted+s.Failed+s.Rejected+s.Retries != 0 {
		t.Errorf("H14: the retry budget has %+v", s)
	}
}

// Nobody's request is served: the error says what it is, and still is no failure of who is not asked. In one over HTTP it is the client's.
func TestWhatIsNotSentForNobody(t *testing.T) {
	i, _, b := broken(t)
	client := pb.NewTestServiceClient(dial(t, serve(t, echo(), grpc.MaxHeaderListSize(2000)), through(i)...))
	for what, ask := range unsent {
		if err := ask(t.Context(), client); status.Code(err) != codes.Internal || bulkhead.IsExcluded(err) {
			t.Errorf("H14: %s: %v", what, err)
		}
		if err := b.only(t); !bulkhead.IsExcluded(err) {
			t.Errorf("H14: %s: the breaker was told %v", what, err)
		}
		h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if err := ask(r.Context(), client); !bulkhead.IsExcluded(err) {
				t.Errorf("H14: %s: over HTTP: %v", what, err)
			}
		}))
		resp := must(h.Client().Get(h.URL))(t)
		_ = resp.Body.Close()
		h.Close()
		b.only(t)
	}
}

// A dependency that cannot send its answer has failed, and what a client has said before excuses no failure of others.
func TestWhatIsSentAndFails(t *testing.T) {
	fails := &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
		return &pb.SimpleResponse{Username: noText.GetMessage()}, nil
	}}
	out, _, dependency := broken(t)
	client := pb.NewTestServiceClient(dial(t, serve(t, fails), through(out)...))
	in, c, gateway := broken(t)
	front := served(t, serving(func(ctx context.Context) error {
		_ = unsent["a value"](ctx, client)
		dependency.only(t)
		return kinds["unary"](ctx, client)
	}), in)
	if err := kinds["unary"](t.Context(), front); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	await(t, "end", c.ended)
	for who, b := range map[string]*breaker{"dependency": dependency, "gateway": gateway} {
		if err := b.only(t); status.Code(err) != codes.Internal {
			t.Errorf("H14: the breaker of the %s was told %v", who, err)
		}
	}
}
