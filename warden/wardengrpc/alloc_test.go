// SPDX-License-Identifier: Apache-2.0

//go:build !race

// What the interceptors cost a call that is let in.

package wardengrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

func TestAllocations(t *testing.T) {
	w := must(warden.New(warden.Config{}))(t)
	i := mustNew(t, w, wardengrpc.Config{})
	ctx := context.Background()
	unary, stream, client := i.UnaryServer(), i.StreamServer(), i.UnaryClient()
	u, s := &grpc.UnaryServerInfo{FullMethod: unaryCall}, &grpc.StreamServerInfo{FullMethod: unaryCall}
	health := &grpc.UnaryServerInfo{FullMethod: "/grpc.health.v1.Health/Check"}
	var ss grpc.ServerStream = bare{ctx: ctx}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	streamer := func(any, grpc.ServerStream) error { return nil }
	invoker := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil }
	for _, c := range []struct {
		name string
		most float64
		run  func()
	}{
		{"a unary call at the server", 2, func() { _, _ = unary(ctx, nil, u, handler) }},
		{"a stream at the server", 3, func() { _ = stream(nil, ss, s, streamer) }},
		{"a unary call at the client", 1, func() { _ = client(ctx, unaryCall, nil, nil, nil, invoker) }},
		{"an exempt call", 0, func() { _, _ = unary(ctx, nil, health, handler) }},
	} {
		if got := testing.AllocsPerRun(1000, c.run); got > c.most {
			t.Errorf("%s: %g allocations, want %g at most", c.name, got, c.most)
		}
	}
}
