// SPDX-License-Identifier: Apache-2.0

// The configuration of the interceptors, and the calls that they exempt.

package wardengrpc

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/slot"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/internal/unit"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// Config describes [Interceptors]. Each field may be zero. Its functions must be safe for concurrent use. All but Rejected are
// called before the call acquires its slot; a panic of one is the panic of the call, which then holds nothing.
type Config struct {
	// Task returns the call's task, by its context and full method ("/package.Service/Method"). nil: the zero Task. One without a Name is
	// named after the method. Priority Normal means that of the context: on the client, that of the request being served. Its Name is
	// truncated to 256 bytes.
	//
	// Its ID connects the answer to a rejection with the log, the trace and the console. On the server, a task without an ID,
	// or with one that is not 1 to 128 visible ASCII characters without quotes and backslashes, gets x-request-id of the
	// metadata, else the trace-id of traceparent, else a generated one; on the client, the ID of the request being served.
	Task func(ctx context.Context, fullMethod string) warden.Task
	// Compartment returns the compartment of a call, by its context and full method. nil: calls use the warden. If set, calls
	// acquire a slot of the compartment instead: its Criticality is their priority, and Task is not called. A call for which
	// it returns nil is rejected as Internal: an unknown compartment is a configuration error. Its breaker is told of timeouts and of
	// the codes Unknown, DeadlineExceeded, Internal, Unavailable and DataLoss; others are about the call.
	Compartment func(ctx context.Context, fullMethod string) *bulkhead.Compartment
	// Exempt reports methods whose calls need no slot and never wait. nil: [HealthOrReflection].
	Exempt func(fullMethod string) bool
	// Trusted reports clients that may raise their priority above the Task's, on the server. A shorter deadline or a lower
	// priority is accepted from every client. When the deadline of an untrusted client passes, the
	// handler's context is canceled as if the client had left, and no breaker gets a failure: ctx.Deadline() says a second more, or
	// nothing of metadata, and outgoing calls through these interceptors the client's own. That of a trusted client is a failure. nil: no client is trusted. docs/observability.md lists the metadata keys; a repeated or
	// malformed one is ignored, also from a trusted client.
	Trusted func(ctx context.Context, fullMethod string) bool
	// LoadReports adds [warden.Warden.Load] to the trailer of Trusted clients' calls, on the server and whether rejected or
	// not, as the per-call report of ORCA (endpoint-load-metrics-bin): a client with the balancer weighted_round_robin sends
	// less to a server that has less room. It is missing while the load has no Utilization or no Served, which balancers would
	// ignore. It reveals the capacity of the service. Not without a warden and Trusted, and not beside
	// orca.CallMetricsServerOption: grpc-go ignores two reports in one call. Each call costs one more call of Trusted, and one
	// of such a client its trailer.
	LoadReports bool
	// Rejected, if not nil, is called for every rejected call with its error, after the decision, on the call's own goroutine,
	// which waits for it. A panic in it is recovered.
	Rejected func(ctx context.Context, fullMethod string, err error)

	// RetryAfter is the delay in RetryInfo if the limiter has no estimate, 1 ms to 1 h; 0: 1 s. A random part of up to the
	// same length is added.
	RetryAfter time.Duration
}

const (
	defaultRetryAfter = time.Second
	longestRetryAfter = time.Hour
	longestName       = 256
)

// HealthOrReflection reports whether a method is of gRPC's own health or reflection services: probes and tools need an answer under
// overload too. Ask it in a Config.Exempt of your own.
func HealthOrReflection(fullMethod string) bool {
	return strings.HasPrefix(fullMethod, "/grpc.health.v1.Health/") ||
		strings.HasPrefix(fullMethod, "/grpc.reflection.v1.ServerReflection/") ||
		strings.HasPrefix(fullMethod, "/grpc.reflection.v1alpha.ServerReflection/")
}

// Interceptors give calls a slot before they run. They are safe for concurrent use, also by several servers and connections,
// and must come from [New]: the zero Interceptors reject every call as Internal.
type Interceptors struct {
	w   *warden.Warden
	cfg Config
}

// New returns interceptors that acquire slots from w, or from the compartments of cfg.Compartment. With compartments, w may
// be nil; otherwise w should be the warden whose decisions the compartments follow, and calls make it take its samples in
// time. The error, a [*warden.InvalidError], names the invalid field. New starts no goroutine.
func New(w *warden.Warden, cfg Config) (*Interceptors, error) {
	if w == nil && cfg.Compartment == nil {
		return nil, invalidField("New: the warden", "nil", "a warden made by warden.New; nil only with Config.Compartment")
	}
	if allowed := unit.Allowed(cfg.RetryAfter, unit.Network, longestRetryAfter, "0 (the default, 1s)"); allowed != "" {
		return nil, invalidField("Config.RetryAfter", cfg.RetryAfter, allowed)
	}
	if cfg.LoadReports && (w == nil || cfg.Trusted == nil) {
		return nil, invalidField("Config.LoadReports", true, "false without a warden, whose load it is, and Trusted, who may know it")
	}
	if cfg.Task == nil {
		cfg.Task = func(context.Context, string) warden.Task { return warden.Task{} }
	}
	if cfg.Exempt == nil {
		cfg.Exempt = HealthOrReflection
	}
	if cfg.RetryAfter == 0 {
		cfg.RetryAfter = defaultRetryAfter
	}
	return &Interceptors{w, cfg}, nil
}

// classify completes the claim of a call, and reports whether its time is a trusted client's. served: the call arrived at a server, so
// the client's metadata may count.
func (i *Interceptors) classify(ctx context.Context, claim *slot.Claim, fullMethod string, served bool) (trusted bool) {
	t := &claim.Task
	if claim.FromCompartment {
		if served {
			t.Priority = claim.Compartment.Criticality()
		}
	} else {
		*t = i.cfg.Task(ctx, fullMethod)
		if t.Name = cmp.Or(t.Name, fullMethod); len(t.Name) > longestName { // clients choose it, and explanations keep it
			t.Name = strings.Clone(t.Name[:longestName])
		}
	}
	if t.Priority == decision.Normal {
		t.Priority = warden.PriorityFrom(ctx)
	}
	if !served {
		return true
	}
	values := func(name string) []string { return metadata.ValueFromIncomingContext(ctx, name) }
	t.ID = requestid.Of(values(requestid.TraceGRPC), []string{t.ID}, values(requestid.GRPC))
	headers := wire.Read(func(n wire.Name) []string { return values(n.GRPC) })
	if _, bounded := ctx.Deadline(); !bounded && !headers.Any() {
		return true
	}
	trusted = i.cfg.Trusted != nil && i.cfg.Trusted(ctx, fullMethod)
	if headers.HasPriority && (trusted || headers.Priority < t.Priority) {
		t.Priority = headers.Priority
	}
	trusted = trusted && len(values(wire.UntrustedGRPC)) == 0
	if headers.Timeout > 0 {
		claim.Arrived = time.Now()
		claim.Tell(headers.Timeout, trusted)
	}
	return trusted
}

// shortened reports whether an interceptor in front has given a call less time than its client.
func shortened(ctx context.Context) bool {
	stream, known := grpc.ServerTransportStreamFromContext(ctx).(interface{ Context() context.Context })
	due, bounded := ctx.Deadline()
	if !known || !bounded {
		return false
	}
	clients, bounded := stream.Context().Deadline()
	return !bounded || due.Before(clients)
}

// outgoing returns ctx with the priority in the metadata, and whether its time is an untrusted client's, replacing what was there; gRPC
// itself sends the deadline. Normal is not sent: the server's own default applies.
func outgoing(ctx context.Context) context.Context {
	_, strangers, _ := timelimit.Due(ctx)
	ctx = timelimit.Told(ctx)
	p := warden.PriorityFrom(ctx)
	md, _ := metadata.FromOutgoingContext(ctx)
	if p == decision.Normal && !strangers && len(md.Get(wire.PriorityGRPC))+len(md.Get(wire.UntrustedGRPC)) == 0 {
		return ctx
	}
	if md == nil {
		md = metadata.MD{}
	}
	if md.Delete(wire.UntrustedGRPC); strangers {
		md.Set(wire.UntrustedGRPC, "1")
	}
	if md.Delete(wire.PriorityGRPC); p != decision.Normal {
		md.Set(wire.PriorityGRPC, p.String())
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// invalidField rejects a field of a configuration, or an argument: the field as in Config.RetryAfter.
func invalidField(field string, value any, allowed string) *warden.InvalidError {
	return &warden.InvalidError{Field: "wardengrpc." + field, Value: value, Allowed: allowed}
}
