// SPDX-License-Identifier: Apache-2.0

// A client's stream, and the detection of its end.

package wardengrpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

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
		h, err := i.begin(ctx, i.claim(ctx, method), method, false)
		if err != nil {
			return nil, err
		}
		h.stream = true
		err = errEndedEarly
		opened := false
		defer func() {
			if !opened {
				h.end(err)
			}
		}()
		var cs grpc.ClientStream
		if cs, err = streamer(outgoing(h.Ctx), desc, cc, method, opts...); err != nil {
			return nil, err
		}
		opened = true
		s := &clientStream{ClientStream: cs, slot: h, one: !desc.ServerStreams}
		s.unwatch = context.AfterFunc(h.Ctx, func() { h.end(h.Ctx.Err()) })
		return s, nil
	}
}

// clientStream releases its slot when the stream ends, however that is detected.
type clientStream struct {
	grpc.ClientStream
	slot    callSlot
	one     bool // the server sends one message
	unwatch func() bool

	alive     sync.Once // for the first sign of life
	closing   func() bool
	receiving atomic.Int32 // calls of RecvMsg and Header under way, which will say how the stream ended if it does
	ended     sync.Once
}

// RecvMsg is the stream's own. An error is its end, and so is the only answer.
func (s *clientStream) RecvMsg(m any) error {
	s.receiving.Add(1)
	err := onTime(s.slot.Ctx, s.ClientStream.RecvMsg(m))
	switch {
	case errors.Is(err, io.EOF):
		s.end(nil)
	case err != nil || s.one:
		s.end(err)
	}
	s.received(err == nil)
	return err
}

// Header is the stream's own. An error is its end.
func (s *clientStream) Header() (metadata.MD, error) {
	s.receiving.Add(1)
	md, err := s.ClientStream.Header()
	if err = onTime(s.slot.Ctx, err); err != nil {
		s.end(err)
	}
	s.received(md != nil && err == nil)
	return md, err
}

// received ends RecvMsg and Header. If there was a sign of life, the stream's own context is watched from then on: it also
// ends when the connection is closed. Before, it must not be asked for: gRPC would not retry any more.
func (s *clientStream) received(alive bool) {
	if alive {
		s.alive.Do(func() {
			ctx := s.Context()
			s.closing = context.AfterFunc(ctx, func() {
				if s.receiving.Load() == 0 {
					s.slot.end(ctx.Err())
				}
			})
		})
	}
	if s.receiving.Add(-1) == 0 && alive && s.Context().Err() != nil {
		s.end(s.Context().Err()) // it ended during the call, which has not noticed
	}
}

// SendMsg is the stream's own. io.EOF only says that RecvMsg knows more; any other error is the end.
func (s *clientStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err != nil && !errors.Is(err, io.EOF) {
		s.end(err)
	}
	return err
}

// end releases the slot and removes all watches from contexts that live on.
func (s *clientStream) end(err error) {
	s.ended.Do(func() {
		s.slot.end(err)
		s.unwatch()
		s.alive.Do(func() {}) // no watch begins from now on
		if s.closing != nil {
			s.closing()
		}
	})
}
