// What the interceptors are made of, and which calls they leave alone.

package wardengrpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/place"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// Config describes [Interceptors]. The zero value is meant for production. Its functions are called by many goroutines at once,
// before the call asks for its place; if one of them panics, that is the panic of the call, which then holds nothing.
type Config struct {
	// Task says what a call is to the warden, by its context and full method ("/package.Service/Method"). nil: a task that is called
	// by the method. Normal priority means that of the context: on the client's side, of the request that is being served. Its Name is
	// cut to 256 bytes.
	//
	// Its ID connects what a refused client is told with the log, the trace and the console. On the server's side a task without one, or with
	// one that is not 1 to 128 visible ASCII characters without quotes and backslashes, gets that of x-request-id in the metadata, else the
	// trace-id of traceparent, else one that is made here; on the client's side that of the request that is being served.
	Task func(ctx context.Context, fullMethod string) warden.Task
	// Compartment says in which compartment a call is to run, by its context and full method. nil: in none, the warden is
	// asked. If it is set, calls ask the compartment instead: its Criticality is their priority, and Task is not asked. A call
	// for which it returns nil is refused as Internal, because a compartment that the set does not know is a mistake.
	Compartment func(ctx context.Context, fullMethod string) *bulkhead.Compartment
	// Exempt calls need no place and never wait. nil: those that [Exempt] says.
	Exempt func(fullMethod string) bool
	// Trusted clients are believed a priority that is higher than Task's, on the server's side. Deadlines that are shorter, and
	// priorities that are lower, are believed of everybody. When the deadline of a stranger passes, no breaker is told of a failure;
	// of a trusted client it is. nil: nobody is trusted. Which keys are understood is in docs/observability.md; one that is there
	// more than once, or is anything but what is described there, is as if it were not there, whoever sent it.
	Trusted func(ctx context.Context, fullMethod string) bool
	// Refused, if not nil, is told every call that was refused, after the decision, in the call's own goroutine: what it
	// spends, the call waits for. A panic in it is contained.
	Refused func(ctx context.Context, fullMethod string, err *RefusedError)

	// RetryAfter is how long a refused client is asked to wait if the limiter cannot tell, up to an hour; 0: a second.
	// Up to as much again is added at random.
	RetryAfter time.Duration
	// Rand draws numbers in [0, 1) and may be called by many goroutines at once; nil: math/rand/v2.
	Rand func() float64
}

const (
	defaultRetryAfter = time.Second
	longestRetryAfter = time.Hour
	longestName       = 256
)

// Exempt says whether a method is of gRPC's own services for health and reflection. What they tell is needed just when
// other calls are refused, and refusing a health check takes a server out of service that is doing its best.
func Exempt(fullMethod string) bool {
	return strings.HasPrefix(fullMethod, "/grpc.health.v1.Health/") ||
		strings.HasPrefix(fullMethod, "/grpc.reflection.v1.ServerReflection/") ||
		strings.HasPrefix(fullMethod, "/grpc.reflection.v1alpha.ServerReflection/")
}

// Interceptors let calls ask for their place. They may be used by any number of goroutines, servers and
// connections, and must come from [New]: the zero Interceptors refuse everything as Internal.
type Interceptors struct {
	w   *warden.Warden
	cfg Config
}

// New returns interceptors that ask w for places, or the compartments of cfg.Compartment: then w, which may be nil, is the
// warden whose decisions rule them, and each call sees to it that w keeps watch. The error, a [*warden.InvalidError], names the
// field that is wrong. It starts no goroutine.
func New(w *warden.Warden, cfg Config) (*Interceptors, error) {
	switch {
	case w == nil && cfg.Compartment == nil:
		return nil, &warden.InvalidError{Field: "w", Value: "nil", Allowed: "a warden made by warden.New, or Config.Compartment"}
	case cfg.RetryAfter < 0 || cfg.RetryAfter > longestRetryAfter:
		return nil, &warden.InvalidError{Field: "wardengrpc.Config.RetryAfter", Value: cfg.RetryAfter, Allowed: "0 (a second) to 1h"}
	}
	if cfg.Task == nil {
		cfg.Task = func(_ context.Context, fullMethod string) warden.Task { return warden.Task{Name: fullMethod} }
	}
	if cfg.Exempt == nil {
		cfg.Exempt = Exempt
	}
	if cfg.RetryAfter == 0 {
		cfg.RetryAfter = defaultRetryAfter
	}
	return &Interceptors{w, cfg}, nil
}

// classify completes what a call asks for, and says whether its client is trusted. served: it came from one, whose word may count.
func (i *Interceptors) classify(ctx context.Context, is *place.Claim, fullMethod string, served bool) (trusted bool) {
	t := &is.Task
	if is.Apart {
		if served {
			t.Priority = is.Compartment.Criticality()
		}
	} else if *t = i.cfg.Task(ctx, fullMethod); len(t.Name) > longestName { // a client may have made it up, and explanations keep it alive
		t.Name = strings.Clone(t.Name[:longestName])
	}
	if t.Priority == warden.Normal {
		t.Priority = warden.PriorityFrom(ctx)
	}
	if !served {
		return true
	}
	t.ID = requestid.Of(metadata.ValueFromIncomingContext(ctx, requestid.TraceGRPC), []string{t.ID}, metadata.ValueFromIncomingContext(ctx, requestid.GRPC))
	said := wire.Read(func(n wire.Name) []string { return metadata.ValueFromIncomingContext(ctx, n.GRPC) })
	if _, bounded := ctx.Deadline(); !bounded && !said.Anything() {
		return true
	}
	trusted = i.cfg.Trusted != nil && i.cfg.Trusted(ctx, fullMethod)
	if said.Ranked && (trusted || said.Priority < t.Priority) {
		t.Priority = said.Priority
	}
	if said.Left > 0 {
		is.Bound(time.Now().Add(said.Left), !trusted)
	}
	return trusted
}

// outgoing is ctx with what the other side is told of it. The time that is left gRPC sends itself; the priority is ours alone, whatever was
// there, and is not said if it is Normal: whoever has no opinion takes the other side's.
func outgoing(ctx context.Context) context.Context {
	p := warden.PriorityFrom(ctx)
	md, _ := metadata.FromOutgoingContext(ctx)
	if p == warden.Normal && len(md.Get(wire.PriorityGRPC)) == 0 {
		return ctx
	}
	if md == nil {
		md = metadata.MD{}
	}
	if md.Delete(wire.PriorityGRPC); p != warden.Normal {
		md.Set(wire.PriorityGRPC, p.String())
	}
	return metadata.NewOutgoingContext(ctx, md)
}
