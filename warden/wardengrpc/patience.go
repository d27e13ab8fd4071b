// SPDX-License-Identifier: Apache-2.0

// Streams that wait for their clients, and those that are made for them, of which somebody may lose patience.

package wardengrpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden/internal/patience"
)

// servedContext is the context of a stream's handler.
type servedContext struct {
	context.Context
	s *slotStream
}

// Value returns the stream for the key of a request that is served.
func (c *servedContext) Value(key any) any {
	if key == (patience.Key{}) {
		return c.s
	}
	return c.Context.Value(key)
}

// Waits is patience.Served's.
func (w *slotStream) Waits(now time.Time) (body, answer patience.Waits) {
	return w.receives.By(now), w.sends.By(now)
}

// Fault is patience.Served's.
func (w *slotStream) Fault(status int) {
	if status != 0 {
		blame(w.call.Ctx)
	} else if of, marked := markOf(w.call.Ctx); marked {
		of.Store(false)
	}
}

// trip is a stream to somebody else, which may be made for a request that is served. Each side may wait for the other, and gRPC does not say
// when it failed: that a client took the time is credible if others were answered meanwhile.
type trip struct {
	host  string
	began time.Time
	sends patience.Clock // in SendMsg

	mu    sync.Mutex // guards all below
	trip  patience.Trip
	asked bool // whether the client keeps it,
	kept  bool // and he does
}

// streamTo returns the trip of a stream.
func streamTo(ctx context.Context, cc *grpc.ClientConn, desc *grpc.StreamDesc) *trip {
	t := &trip{host: target(cc), began: time.Now(), trip: patience.Begin(ctx, target(cc))}
	t.trip.Sends = desc.ClientStreams
	return t
}

// target returns whom a connection is to; there is none in tests that call an interceptor themselves.
func target(cc *grpc.ClientConn) string {
	if cc == nil {
		return ""
	}
	return cc.Target()
}

// answered notes that a unary call was answered, if it was, and returns its error.
func answered(cc *grpc.ClientConn, err error) error {
	if err == nil {
		patience.Answered(target(cc))
	}
	return err
}

// send sends a message of the stream's.
func (t *trip) send(s grpc.ClientStream, m any) error {
	t.sends.Begin(time.Now())
	err := s.SendMsg(m)
	t.sends.End(time.Now(), err != nil)
	return err
}

// closeSend says that nothing more is sent, and notes it of a stream that has not ended before.
func (t *trip) closeSend(s grpc.ClientStream) error {
	if !t.sends.By(time.Now()).Whole {
		t.mu.Lock()
		t.trip.Sent()
		t.mu.Unlock()
	}
	return s.CloseSend()
}

// received says that RecvMsg has returned.
func (t *trip) received(err error) {
	if err != nil && !errors.Is(err, io.EOF) {
		return
	}
	patience.Answered(t.host)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trip.Answers = true; t.trip.Sends { // what there is of other answers may have come long before the client took them
		t.trip.Renew()
	} else {
		t.trip.Since.Answered()
	}
}

// keeps reports whether the client of the request that the stream is made for is what took its time. nil: it is a call, of which all was
// said when it began.
func (t *trip) keeps(ctx context.Context, err error) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.asked {
		now, of, timedOut := time.Now(), t.trip, errors.Is(ctx.Err(), context.DeadlineExceeded)
		took := t.sends.By(now)
		if lasted := now.Sub(t.began); took.Lately || lasted < time.Second && 2*took.Took > lasted { // who is asked did not take it
			of.Sends = false
		}
		t.asked = true
		t.kept = of.Keeps(timedOut, timedOut || status.Code(err) == codes.Unavailable) && of.Excuse()
	}
	return t.kept
}

// blame tells the request that the call was made for whose fault it is.
func (t *trip) blame() { t.trip.Fault(http.StatusRequestTimeout) }
