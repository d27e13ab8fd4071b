// SPDX-License-Identifier: Apache-2.0

// A client's stream, whose end gRPC tells.

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
		h, err := i.begin(ctx, i.claim(ctx, method), method, madeCall)
		if err != nil {
			return nil, err
		}
		h.stream = true
		s := &clientStream{slot: h, out: outgoing(h.Ctx), made: streamTo(ctx, cc, desc), one: !desc.ServerStreams}
		opened := false
		err = errEndedEarly
		defer func() {
			if !opened {
				s.end(err)
			}
		}()
		opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(err error) { s.end(s.judged(err)) }))
		if s.ClientStream, err = streamer(s.out, desc, cc, method, opts...); err != nil {
			err = s.judged(err)
			return nil, err
		}
		opened = true
		return s, nil
	}
}

// clientStream releases its slot when gRPC says that the stream has ended, or when its caller sees that.
type clientStream struct {
	grpc.ClientStream
	slot    callSlot
	out     context.Context // with the metadata that are sent
	made    *trip
	one     bool        // the server sends one message
	sending atomic.Bool // SendMsg runs
	ended   sync.Once
}

// judged returns the error of the stream as that of a call.
func (s *clientStream) judged(err error) error {
	return judged(s.out, onTime(s.slot.Ctx, err), s.sending.Load, s.made)
}

// SendMsg is the stream's own. An error is its end, except io.EOF: RecvMsg says why.
func (s *clientStream) SendMsg(m any) error {
	s.sending.Store(true)
	defer s.sending.Store(false)
	return s.judged(s.made.send(s.ClientStream, m))
}

// CloseSend is the stream's own.
func (s *clientStream) CloseSend() error { return s.made.closeSend(s.ClientStream) }

// RecvMsg is the stream's own. An error is its end, and so is the only answer.
func (s *clientStream) RecvMsg(m any) error {
	err := s.judged(s.ClientStream.RecvMsg(m))
	s.made.received(err)
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
	if err = s.judged(err); err != nil {
		s.end(err)
	}
	return md, err
}

func (s *clientStream) end(err error) { s.ended.Do(func() { s.slot.end(err) }) }
