// SPDX-License-Identifier: Apache-2.0

// The client side: a rejected call is made again if that is safe, within the retry budget and useful.

package wardengrpc

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/internal/unit"
	"github.com/stopbank/stopbank/warden/retry"
)

// RetryConfig describes a [Retry]. The zero value is ready to use. Its functions must be safe for concurrent use.
type RetryConfig struct {
	// Repeatable reports whether a method may be handled twice. nil: none may. Calls of other methods are repeated only if
	// they were certainly not handled.
	Repeatable func(fullMethod string) bool
	// AttemptTimeout bounds an attempt of a unary call, 1 ms or more; 0: only the context bounds it.
	AttemptTimeout time.Duration
}

// Retry repeats calls under the budget and throttle of a [retry.Caller]. It is safe for concurrent use, also by several
// connections, and must come from [NewRetry]: the zero Retry makes no call. gRPC's own retry policies know no budget: do not
// configure them as well. Its transparent retries, of calls that no server has seen, remain.
type Retry struct {
	caller *retry.Caller
	cfg    RetryConfig
}

// NewRetry returns a Retry under the rules of c, which counts each target of a connection and each class of priority (that of the call's
// context, [warden.PriorityFrom]) by itself. The error, a [*warden.InvalidError], names the invalid argument.
func NewRetry(c *retry.Caller, cfg RetryConfig) (*Retry, error) {
	if c == nil {
		return nil, invalidField("NewRetry: the caller", "nil", "a caller made by retry.New")
	}
	if allowed := unit.Allowed(cfg.AttemptTimeout, unit.Network, 0, "0 (unlimited)"); allowed != "" {
		return nil, invalidField("RetryConfig.AttemptTimeout", cfg.AttemptTimeout, allowed)
	}
	if cfg.Repeatable == nil {
		cfg.Repeatable = func(string) bool { return false }
	}
	return &Retry{c, cfg}, nil
}

// UnaryClient repeats unary calls: grpc.WithChainUnaryInterceptor(r.UnaryClient(), ...). Put it before
// [Interceptors.UnaryClient], so that each attempt acquires a slot. A call that the throttle rejects is not sent; its error
// is [retry.ErrThrottled]. Otherwise the error is that of the last attempt, or of the context if that ends between two
// attempts.
func (r *Retry) UnaryClient() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		_, _, err := r.call(ctx, cc, method, opts, func(ctx context.Context, opts []grpc.CallOption) (bool, error) {
			if r.cfg.AttemptTimeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, r.cfg.AttemptTimeout)
				defer cancel()
			}
			err := onTime(ctx, invoker(ctx, method, req, reply, cc, opts...))
			return true, answered(cc, judged(ctx, err, func() bool { return unmarshalable(req, opts) }, nil))
		})
		return err
	}
}

// StreamClient opens streams of a client under the same rules: grpc.WithChainStreamInterceptor(r.StreamClient(), ...). It
// retries the opening of a stream; an open stream is not reopened, because its sent messages are gone. Its first answer
// counts for the throttle.
func (r *Retry) StreamClient() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		var cs grpc.ClientStream
		made := streamTo(ctx, cc, desc)
		call, p, err := r.call(ctx, cc, method, opts, func(ctx context.Context, opts []grpc.CallOption) (_ bool, err error) {
			cs, err = streamer(ctx, desc, cc, method, opts...)
			return err != nil, judged(ctx, onTime(ctx, err), func() bool { return false }, nil)
		})
		if err != nil {
			return nil, err
		}
		return &reportedStream{ClientStream: cs, ctx: ctx, made: made, call: call, priority: p}, nil
	}
}

// reportedStream reports the first answer of a stream to the Caller.
type reportedStream struct {
	grpc.ClientStream
	ctx      context.Context // of the call: the stream's own ends with the stream
	made     *trip
	call     retry.Call
	priority decision.Priority
	reported bool // RecvMsg is called by one goroutine at a time
}

// SendMsg is the stream's own.
func (s *reportedStream) SendMsg(m any) error {
	return judged(s.ctx, s.made.send(s.ClientStream, m), func() bool { return true }, s.made) // no server says that here
}

// CloseSend is the stream's own.
func (s *reportedStream) CloseSend() error { return s.made.closeSend(s.ClientStream) }

// RecvMsg is the stream's own.
func (s *reportedStream) RecvMsg(m any) error {
	err := judged(s.ctx, onTime(s.ctx, s.ClientStream.RecvMsg(m)), func() bool { return false }, s.made)
	s.made.received(err)
	if !s.reported {
		s.reported = true
		answered := err
		var trailer metadata.MD
		switch {
		case errors.Is(err, io.EOF):
			answered = nil // it ended, and well
		case err != nil:
			trailer = s.Trailer()
		}
		s.call.Ended(s.priority, classifyAttempt(s.ctx, answered, trailer, true).outcome)
	}
	return err
}

// call makes the attempts of a call. try reports whether the attempt has ended: a stream that was opened has not.
func (r *Retry) call(
	ctx context.Context, cc *grpc.ClientConn, method string, opts []grpc.CallOption,
	try func(context.Context, []grpc.CallOption) (bool, error),
) (retry.Call, decision.Priority, error) {
	if r.caller == nil {
		return retry.Call{}, 0, invalidField("Retry", "nil or zero", "a retry made by wardengrpc.NewRetry")
	}
	p := warden.PriorityFrom(ctx)
	to := retry.Target{Path: method, Priority: p}
	if cc != nil { // it is in tests that call an interceptor themselves
		to.Dependency = cc.Target()
	}
	call, err := r.caller.Begin(to)
	if err != nil {
		return call, p, err
	}
	repeatable := r.cfg.Repeatable(method)
	deadline, strangers, _ := timelimit.Due(ctx)
	out := outgoing(ctx)
	for {
		var trailer metadata.MD
		var server peer.Peer
		ended, err := try(out, append(opts[:len(opts):len(opts)], grpc.Trailer(&trailer), grpc.Peer(&server)))
		if !ended {
			return call, p, nil
		}
		v := classifyAttempt(ctx, err, trailer, server.Addr != nil)
		call.Ended(p, v.outcome)
		if !v.again || !(v.unprocessed || repeatable) {
			return call, p, err
		}
		wait, ok := call.Retry(v.after, deadline)
		if !ok {
			if strangers && wait > 0 {
				timelimit.TooLate(ctx, deadline, true)
			}
			return call, p, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return call, p, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// result is the result of an attempt.
type result struct {
	outcome     retry.Outcome
	again       bool          // another attempt may fare better
	unprocessed bool          // no handler has seen it: any method can be called again
	after       time.Duration // that the server wants to be left alone; negative: for good
}

// classifyAttempt classifies an attempt of a call with this context. sent: it was sent to a server.
func classifyAttempt(ctx context.Context, err error, trailer metadata.MD, sent bool) result {
	s, known := status.FromError(err)
	var local *rejectedError
	switch {
	case errors.As(err, &local), isInnocent(err), err != nil && bulkhead.IsExcluded(err), !known, errors.Is(ctx.Err(), context.Canceled):
		return result{} // it was not sent, or its caller went away
	case err != nil && ctx.Err() != nil:
		return result{outcome: retry.Failed} // no time is left
	}
	answer := read(s, trailer)
	outcome := retry.Failed // perhaps only this method's service does not answer (H25)
	switch {
	case answer.scope == rpcstatus.Tenant: // it says nothing about calls of others
		outcome = retry.Unknown
	case answer.scope == rpcstatus.Compartment: // nor about methods in other compartments
	case !sent, answer.ours && (answer.unprocessed || s.Code() != codes.DeadlineExceeded): // not if a handler was too slow
		outcome = retry.Rejected
	}
	switch s.Code() {
	case codes.Unavailable:
		return result{outcome, true, answer.unprocessed || !sent, answer.after}
	case codes.DeadlineExceeded:
		return result{outcome, true, answer.unprocessed, answer.after}
	case codes.ResourceExhausted:
		if !answer.ours { // the caller's own quota, or a message that is too long: it says nothing about the server
			outcome = retry.Unknown
		}
		return result{outcome, answer.again, answer.unprocessed, answer.after}
	case codes.Canceled:
		return result{}
	}
	return result{outcome: retry.Accepted}
}

// pushbackKey is in the trailer of a server that says when to try again, in milliseconds; anything but such a number means
// never (gRFC A6).
const pushbackKey = "grpc-retry-pushback-ms"

// hints is what a status and its trailer say about another attempt.
type hints struct {
	ours, again, unprocessed bool   // rejected by this project; another attempt is welcome
	foreseen                 bool   // this project has seen at once that too little time is left
	scope                    string // whom a rejection by this project concerns
	after                    time.Duration
}

func read(s *status.Status, trailer metadata.MD) (r hints) {
	const longest = 24 * time.Hour
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == rpcstatus.Domain {
				r.ours, r.again = true, true
				r.foreseen = strings.EqualFold(d.GetReason(), string(decision.DeadlineExceeded))
				r.scope = d.GetMetadata()[rpcstatus.Scope]
				r.unprocessed = d.GetMetadata()[rpcstatus.Processed] == "false"
			}
		case *errdetails.RetryInfo:
			r.again = true
			if delay := d.GetRetryDelay(); delay.IsValid() {
				r.after = min(max(0, delay.AsDuration()), longest)
			}
		}
	}
	if v := trailer.Get(pushbackKey); len(v) > 0 {
		r.again = true
		ms, err := strconv.ParseInt(v[0], 10, 32)
		if len(v) > 1 || err != nil || ms < 0 {
			r.after = -1
		} else {
			r.after = time.Duration(ms) * time.Millisecond
		}
	}
	return r
}
