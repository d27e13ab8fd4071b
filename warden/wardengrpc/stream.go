// SPDX-License-Identifier: Apache-2.0

// A client's stream, whose end gRPC tells.

package wardengrpc

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// StreamClient gives streams of a client their slot, which they hold until nothing more can arrive, as the package
// documentation says: grpc.WithChainStreamInterceptor(i.StreamClient(), ...). A rejected stream is not opened.
func (i *Interceptors) StreamClient() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if i.exempt(method) {
			return streamer(ctx, desc, cc, method, opts...)
		}
		h, err := i.begin(ctx, i.claim(ctx, method), method, madeCall)
		if err != nil {
			return nil, err
		}
		h.stream = true
		s := &clientStream{slot: h, one: !desc.ServerStreams}
		opened := false
		err = errEndedEarly
		defer func() {
			if !opened {
				s.end(err)
			}
		}()
		opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(err error) { s.end(onTime(h.Ctx, err)) }))
		if s.ClientStream, err = streamer(outgoing(h.Ctx), desc, cc, method, opts...); err != nil {
			return nil, err
		}
		opened = true
		return s, nil
	}
}

// clientStream releases its slot when gRPC says that the stream has ended, or when its caller sees that.
type clientStream struct {
	grpc.ClientStream
	slot  callSlot
	one   bool // the server sends one message
	ended sync.Once
}

// RecvMsg is the stream's own. An error is its end, and so is the only answer.
func (s *clientStream) RecvMsg(m any) error {
	err := onTime(s.slot.Ctx, s.ClientStream.RecvMsg(m))
	switch {
	case errors.Is(err, io.EOF):
		s.end(nil)
	case err != nil || s.one:
		s.end(err)
	}
	return err
}

// Header is the stream's own. An error is its end.
func (s *clientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err = onTime(s.slot.Ctx, err); err != nil {
		s.end(err)
	}
	return md, err
}

func (s *clientStream) end(err error) { s.ended.Do(func() { s.slot.end(err) }) }
