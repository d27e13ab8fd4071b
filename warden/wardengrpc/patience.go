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
	return w.receives.by(now), w.sends.by(now)
}

// Fault is patience.Served's.
func (w *slotStream) Fault(status int) {
	if status != 0 {
		blame(w.call.Ctx)
	} else if of, marked := markOf(w.call.Ctx); marked {
		of.Store(false)
	}
}

// waits are those of a stream for messages of the other side's, or for it to take some.
type waits struct {
	mu    sync.Mutex // guards all below
	total patience.Waits
	since time.Time // when the one began that goes on; zero: none does
}

func (w *waits) begin(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since = now; w.total.First.IsZero() {
		w.total.First = now
	}
}

// end ends a wait. over: it was the last one.
func (w *waits) end(now time.Time, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total.Took += now.Sub(w.since)
	w.total.Whole = w.total.Whole || over
	w.since = time.Time{}
}

func (w *waits) by(now time.Time) patience.Waits {
	w.mu.Lock()
	defer w.mu.Unlock()
	total := w.total
	if !w.since.IsZero() {
		total.Took += now.Sub(w.since)
	}
	return total
}

// trip is a call to somebody else, which may be made for a request that is served.
type trip struct {
	both  bool // sides send many messages: each may wait for the other, and who of them does is not seen
	began time.Time
	sends waits // in SendMsg

	mu   sync.Mutex // guards trip
	trip patience.Trip
}

// streamTo returns the trip of a stream.
func streamTo(ctx context.Context, cc *grpc.ClientConn, desc *grpc.StreamDesc) *trip {
	t := &trip{both: desc.ClientStreams && desc.ServerStreams, trip: patience.Begin(ctx, target(cc)), began: time.Now()}
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
	if err == nil || !serverFault(err) {
		patience.Answered(target(cc))
	}
	return err
}

// send sends a message of the stream's.
func (t *trip) send(s grpc.ClientStream, m any) error {
	t.sends.begin(time.Now())
	err := s.SendMsg(m)
	t.sends.end(time.Now(), false)
	return err
}

// received says that RecvMsg has returned.
func (t *trip) received(err error) {
	if err != nil && !errors.Is(err, io.EOF) && serverFault(err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if first := !t.trip.Answers; first || t.both {
		patience.Answered(t.trip.Host)
	}
	if t.trip.Answers = true; t.both {
		t.trip.Restart()
	}
}

// keeps reports whether the client of the request that the call is made for is what took its time. nil: it was all said when it began.
func (t *trip) keeps(ctx context.Context, err error) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	of, timedOut, others := t.trip, errors.Is(ctx.Err(), context.DeadlineExceeded), t.trip.OthersAnswered()
	now := time.Now()
	of.Sends = of.Sends && 2*t.sends.by(now).Took <= now.Sub(t.began) // more of it, and who is asked took nothing
	return (!t.both || others) && of.Keeps(timedOut, timedOut || others && status.Code(err) == codes.Unavailable)
}

// blame tells the request that the call was made for whose fault it is.
func (t *trip) blame() { t.trip.Fault(http.StatusRequestTimeout) }
