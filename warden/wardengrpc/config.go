// What the interceptors are made of, and which calls they leave alone.

package wardengrpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
)

// PriorityKey is the key of the metadata in which a client may say how much its call matters: an integer, -128 to 127, or one
// of background, normal, high and critical. See Config.Trusted.
const PriorityKey = "warden-priority"

// Config describes [Interceptors]. The zero value is meant for production. Its functions are called by many goroutines at once,
// before the call asks for its place; if one of them panics, that is the panic of the call, which then holds nothing.
type Config struct {
	// Task says what a call is to the warden, by its context and full method ("/package.Service/Method"). nil: a task of
	// normal priority that is called by the method. Its Name is cut to 256 bytes.
	Task func(ctx context.Context, fullMethod string) warden.Task
	// Compartment says in which compartment a call is to run, by its context and full method. nil: in none, the warden is
	// asked. If it is set, calls ask the compartment instead: its Criticality is their priority, and Task is not asked. A call
	// for which it returns nil is refused as Internal, because a compartment that the set does not know is a mistake.
	Compartment func(ctx context.Context, fullMethod string) *bulkhead.Compartment
	// Exempt calls need no place and never wait. nil: those that [Exempt] says.
	Exempt func(fullMethod string) bool
	// Trusted clients are believed the priority in their metadata, on the server's side. From all others it is taken only
	// if it is lower than Task's. nil: nobody is trusted. A key that is there more than once, or that is no priority, is as
	// if it were not there, whoever sent it.
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

// task is what a call is to the warden. asked: it came from a client, whose word may count.
func (i *Interceptors) task(ctx context.Context, fullMethod string, asked bool) warden.Task {
	t := i.cfg.Task(ctx, fullMethod)
	if len(t.Name) > longestName { // a client may have made it up, and explanations keep it alive
		t.Name = strings.Clone(t.Name[:longestName])
	}
	if !asked {
		return t
	}
	if v := metadata.ValueFromIncomingContext(ctx, PriorityKey); len(v) == 1 { // two may be two people's
		p, ok := priority(v[0])
		if ok && (p < t.Priority || p > t.Priority && i.cfg.Trusted != nil && i.cfg.Trusted(ctx, fullMethod)) {
			t.Priority = p
		}
	}
	return t
}
