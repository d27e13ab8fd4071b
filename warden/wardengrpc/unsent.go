// SPDX-License-Identifier: Apache-2.0

// Calls whose failure is nobody's, but that of a gateway's client: he has written what gRPC does not send, or kept those waiting who were
// asked.

package wardengrpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// innocentError is the error of a call that was not sent for what is in it, or that failed for the client whose request is served. In such a
// request it matches context.Canceled, as if the client had left: whoever learns of it does not blame the dependency.
type innocentError struct {
	error
	served, unsent bool
}

func (e innocentError) Unwrap() error { return e.error }

func (e innocentError) Is(target error) bool { return e.served && target == context.Canceled }

func (e innocentError) GRPCStatus() *status.Status {
	s := status.Convert(e.error)
	if e.served {
		return status.New(codes.Canceled, s.Message())
	}
	return s
}

// isInnocent reports whether err is, or wraps, an innocentError.
func isInnocent(err error) bool {
	var of innocentError
	return errors.As(err, &of)
}

// How gRPC begins to say that it does not send a message, or as many headers. A server says the first of its answer too.
const (
	noMessage   = "grpc: error while marshaling: "
	longHeaders = "header list size to send violates "
)

// judged returns the error of a call with this context, as an innocentError if gRPC has not sent it for what is in it, or if it failed for
// the client of the request that it was made for, which learns that too. unsendable reports whether it is the message that gRPC does not
// send, if err says so.
func judged(ctx context.Context, err error, unsendable func() bool, made *trip) error {
	if err == nil || errors.Is(err, io.EOF) || !serverFault(err) || isInnocent(err) {
		return err
	}
	text := status.Convert(err).Message()
	switch {
	case status.Code(err) == codes.Internal &&
		(strings.HasPrefix(text, longHeaders) || strings.HasPrefix(text, noMessage) && unsendable() || !sendable(ctx)):
		return innocentError{err, blame(ctx), true}
	case made.keeps(ctx, err):
		made.blame()
		return innocentError{err, true, false}
	}
	if of, marked := markOf(ctx); marked { // what its client has said before excuses no failure of others
		of.Store(false)
	}
	return err
}

// sendable reports whether gRPC sends the metadata of a call: its keys have these characters alone, and its values, unless they are said
// to be binary, ASCII's text.
func sendable(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	for key, values := range md {
		if key == "" || key[0] != ':' && strings.Trim(key, "0123456789abcdefghijklmnopqrstuvwxyz-_.") != "" ||
			!strings.HasSuffix(key, "-bin") && slices.ContainsFunc(values, unprintable) {
			return false
		}
	}
	return true
}

func unprintable(value string) bool {
	return strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' })
}

// unmarshalable reports whether the codec of a call with these options makes no message of m.
func unmarshalable(m any, opts []grpc.CallOption) bool {
	name := proto.Name
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ForceCodecCallOption:
			_, err := o.Codec.Marshal(m)
			return err != nil
		case grpc.ForceCodecV2CallOption:
			return fails(o.CodecV2, m)
		case grpc.ContentSubtypeCallOption:
			name = o.ContentSubtype
		}
	}
	if codec := encoding.GetCodec(name); codec != nil {
		_, err := codec.Marshal(m)
		return err != nil
	}
	codec := encoding.GetCodecV2(name)
	return codec != nil && fails(codec, m)
}

func fails(codec encoding.CodecV2, m any) bool {
	b, err := codec.Marshal(m)
	b.Free()
	return err != nil
}

// marks say of served calls, by their streams, whether their clients have said what cannot be sent on. In the context of each call that
// would cost all calls an allocation.
var marks sync.Map //nolint:gochecknoglobals // of the process, as the streams

// serverStream is what gRPC has of a served call.
type serverStream interface{ Context() context.Context }

func servedBy(ctx context.Context) (serverStream, bool) {
	s, is := grpc.ServerTransportStreamFromContext(ctx).(serverStream)
	return s, is && reflect.TypeOf(s).Comparable()
}

// markOf returns the mark of the served call in whose context something is done, if it has one.
func markOf(ctx context.Context) (*atomic.Bool, bool) {
	served, is := servedBy(ctx)
	if !is {
		return nil, false
	}
	of, _ := marks.Load(served)
	mark, is := of.(*atomic.Bool)
	return mark, is
}

// blame marks the served call in whose context a call was not sent, and reports whether there is a served call or request.
func blame(ctx context.Context) bool {
	served, is := servedBy(ctx)
	if !is {
		return ctx.Value(http.ServerContextKey) != nil
	}
	of, there := marks.LoadOrStore(served, new(atomic.Bool))
	of.(*atomic.Bool).Store(true)
	if !there {
		context.AfterFunc(served.Context(), func() { marks.Delete(served) })
	}
	return true
}

// blamed reports whether the client of a served call has said what cannot be sent on.
func blamed(ctx context.Context) bool {
	of, marked := markOf(ctx)
	return marked && of.Load()
}
