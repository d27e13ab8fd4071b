// SPDX-License-Identifier: Apache-2.0

// Many calls of all kinds, on both sides, that end in every way: afterwards nothing is held.

package wardengrpc_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden/wardengrpc"
)

func TestNothingIsHeldAfterwards(t *testing.T) {
	outside, inside := newGuard(t, 6, 10), newGuard(t, 3, 4)
	ending := func(n int32) error {
		switch n % 4 {
		case 0:
			return status.Error(codes.NotFound, "nothing here")
		case 1:
			panic("on purpose")
		}
		return nil
	}
	s := &service{
		unary: func(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return &pb.SimpleResponse{}, ending(r.GetResponseSize())
		},
		duplex: func(ss pb.TestService_FullDuplexCallServer) error {
			for {
				r, err := ss.Recv()
				if err != nil {
					return nil //nolint:nilerr // the client has ended it
				}
				if err := ending(r.GetResponseStatus().GetCode()); err != nil {
					return err
				}
				if err := ss.Send(&pb.StreamingOutputCallResponse{}); err != nil {
					return err
				}
			}
		},
	}
	addr := serve(t, s, under(mustNew(t, inside.Warden, wardengrpc.Config{}))...)
	client := pb.NewTestServiceClient(dial(t, addr, through(mustNew(t, outside.Warden, wardengrpc.Config{}))...))
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			for range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(30))*time.Millisecond)
				if rand.IntN(2) == 0 {
					_, _ = client.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: rand.Int32N(4)})
					cancel()
					continue
				}
				stream, err := client.FullDuplexCall(ctx)
				for n := rand.IntN(4); err == nil && n > 0; n-- {
					if err = stream.Send(
						&pb.StreamingOutputCallRequest{ResponseStatus: &pb.EchoStatus{Code: rand.Int32N(8)}},
					); err == nil && rand.IntN(2) == 0 {
						_, err = stream.Recv()
					}
				}
				cancel() // the stream may have ended, or never have been read
			}
		})
	}
	all.Wait()
	for _, g := range []*guard{outside, inside} {
		until(t, "rest", func() bool { // an end is observed after its slot is free
			s := g.Limiter().Stats()
			return s.Running == 0 && s.Queued == 0 && g.starts.Load() == g.ends.Load()
		})
		if s := g.Limiter().Stats(); s.Executed == 0 || g.starts.Load() != g.ends.Load() || uint64(g.ends.Load()) != s.Executed {
			t.Errorf("%d started and %d ended of %+v", g.starts.Load(), g.ends.Load(), s)
		}
	}
}
