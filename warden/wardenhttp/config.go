// SPDX-License-Identifier: Apache-2.0

// The configuration of a middleware.

package wardenhttp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/unit"
)

// Config describes a [Middleware]. Each field may be zero. Its functions must be safe for concurrent use. Task, Exempt,
// Compartment and Trusted are called before the request acquires its slot; a panic of one is the panic of the request, which
// then holds nothing.
type Config struct {
	// Task returns the request's task; nil: the zero Task. Priority Normal means that of the context ([warden.WithPriority]).
	//
	// The Name is the kind of work, of which a warden learns how long it takes. A Task without one is named after the pattern that
	// the request matches in the [http.ServeMux] behind the middleware, or has matched in one in front; requests that match none
	// have no name, and are one kind. Asking a mux behind the middleware takes about 150 ns and an allocation, and for what
	// matches no route 0.8 us and 11 allocations. Where another router routes, return its pattern, never what clients choose,
	// such as a path. Explanations of rejected requests keep the Name, which is truncated to 256 bytes.
	//
	// Its ID connects the answer to a rejection with the log, the trace and the console. If a task has no ID, or one that is
	// not 1 to 128 visible ASCII characters without quotes and backslashes, the first valid one of these is used: the
	// X-Request-Id that an outer handler set in the answer, that of the request, the trace-id of its traceparent, and a
	// generated one. An ID is only text, whatever its source: no decision depends on it.
	Task func(*http.Request) warden.Task
	// Timeout is the time from arrival within which an answer is useful, 1 ms or more; 0: unlimited, so that a handler that hangs
	// holds its slot until it returns. After it the request is not started, and its context ends, under a warden and in
	// compartments. It stands still while the handler waits for its client in Read or Write, begins anew with each Write or Flush
	// without an error, and does not end an answer that is a stream: of type text/event-stream, gRPC or Connect's streams, after a
	// status of 101, or hijacked. So it is no Deadline of the context; that of the Task bounds a request as a whole.
	// [warden.Warden.Adjust] replaces it while the service runs. Deadlines of the Task, the context and the client count as well:
	// the earliest applies.
	Timeout time.Duration
	// Exempt reports requests that need no slot and never wait, such as health checks. nil: none.
	Exempt func(*http.Request) bool
	// Compartment returns the compartment of a request. nil: requests use the warden. If set, requests acquire a slot of the
	// compartment instead, with its Criticality as their priority, and only the Task's deadline and ID are used. A request for
	// which it returns nil is answered 500: an unknown compartment is a configuration error.
	Compartment func(*http.Request) *bulkhead.Compartment

	// Buffered keeps each answer in memory until its handler is done, as net/http's TimeoutHandler does. A request whose
	// deadline passes is then answered 504 immediately; its handler keeps the slot until it is done, and its later output is
	// discarded. Handlers run on their own goroutines, cannot flush or hijack, and release their slot before the client has
	// read the answer. Mount it around a router that reuses the contexts of its requests, as chi, echo and gin do, and not
	// behind it: a handler that is left behind would see the next request's.
	Buffered bool
	// BufferPerAnswer is how many bytes of one body Buffered keeps, 1 or more, and BufferTotal of all bodies together,
	// BufferPerAnswer or more; 0: 1 MiB and 64 MiB. Both are 0 without Buffered. An answer that needs more is sent as it is
	// written, whole, and from then on its handler as without Buffered. What is kept takes up to twice its length.
	BufferPerAnswer, BufferTotal int
	// Grace is how long a client may keep a handler waiting, for its body or until it reads the answer, 1 ms or more; 0: 10 s.
	// Every MinRate bytes transferred, 0 or more, earn one second back; 0: 4096. Other time does not count: neither the
	// handler's computing, nor the pauses of an event stream. A slower client is cut off, where Grace is 0 only while others need
	// its slot, because none is free or somebody waits: Read and Write return [ErrSlowPeer], and if the handler answers nothing, the answer is 408. A handler that sets a deadline through
	// [http.ResponseController] controls that direction from then on, and one that hijacks controls the connection. Grace also
	// bounds how long an upstream keeps the slot of a request that has ended, see [Detach].
	Grace   time.Duration
	MinRate int

	// Trusted reports requests that may raise their priority above the Task's. A shorter deadline or a lower priority is
	// accepted from every client, because it only gives up capacity. A client's deadline moves as Timeout does,
	// and is no Deadline of the context. That of an untrusted one ends its request like a disconnect, and next gets no Grpc-Timeout and
	// no Connect-Timeout-Ms, to which a library would set a timer; outgoing requests through this package say what is left of it. The
	// deadline of a trusted client counts as the service's timeout. nil: no request is trusted.
	// The headers are Warden-Priority and Warden-Timeout, and those for timeouts and priorities of other systems that
	// the package comment lists; a repeated or malformed header is ignored, also from a trusted client.
	Trusted func(*http.Request) bool

	// LoadReports adds the header endpoint-load-metrics with [warden.Warden.Load] to the answers to Trusted requests,
	// rejections included: a load balancer that reads it (ORCA) sends less to a server that has less room. The header is
	// missing while the load has no Utilization or no Served, which balancers would ignore. It reveals the capacity of the
	// service: let Trusted accept only the balancer, which removes the header. Not without a warden and Trusted. It costs each
	// request a call of Trusted, and such a one two allocations.
	LoadReports bool

	// RetryAfter is the Retry-After of a rejection for which the limiter has no estimate, 1 ms to 1 h; 0: 1 s. It is rounded up
	// to whole seconds, and a random part of up to the same length is added.
	RetryAfter time.Duration
	rand       func() float64 // in [0, 1), for tests; nil: math/rand/v2
	// Answer, if not nil, may answer a rejected request itself, in its clients' own protocol, and reports whether it did; if
	// not, it must have written nothing. err is an error that WriteError accepts. Package wardenconnect provides one for RPC
	// protocols.
	Answer func(w http.ResponseWriter, r *http.Request, err error) bool
	// Fallback, if not nil, answers requests that the Compartment rejects, or that run out of time before they have an answer, in
	// another way, such as with a cached page, and reports whether it did; if not, it must have written nothing. cause is the
	// error that WriteError would be given. Fallbacks run outside the compartment's slots, at most MaxFallback at a time (B9),
	// and are counted as degraded or failed. The request has no body, and its context ends after Grace. Beyond MaxFallback, or
	// if the client has left, the answer is that without a Fallback. A panic is that of the request. Without a Compartment, New
	// returns an error.
	Fallback func(w http.ResponseWriter, r *http.Request, cause error) bool
	// Instance is the name of this process, such as its pod's, sent to rejected clients as server_instance: up to 128 bytes
	// of UTF-8; "": not sent.
	Instance string
	// Verbose adds the full explanation to a rejection, for clients that may see the server's internals.
	Verbose bool
}

const (
	longestRetryAfter = time.Hour
	longestInstance   = 128 // bytes
)

// Middleware gives requests to handlers a slot before they run. It is safe for concurrent use and must come from [New]: the
// zero Middleware answers every request with 500.
type Middleware struct {
	capacity             capacity
	cfg                  Config
	answers              answers
	pace                 pace
	buffered             atomic.Int64 // bytes of buffered answers
	warnedTimeoutHandler atomic.Bool  // a TimeoutHandler was found inside, and logged
	warnedHTTP2          atomic.Bool  // HTTP/2 without a WriteByteTimeout was found, and logged
	warnedNil            atomic.Bool  // a nil handler was found, and logged
	warnedDry            atomic.Bool  // a request that only Enforce would have ended, logged
	rejected             atomic.Int64 // requests since one was logged
	logRejectedAt        atomic.Int64 // when the next may be, in Unix nanoseconds
}

// New returns a Middleware that acquires slots from w, or from the compartments of cfg.Compartment. With compartments, w may
// be nil; otherwise w should be the warden that sends its decisions to the set (warden.Config.ApplyTo), and requests make it
// take its samples in time. The error, a [*warden.InvalidError], names the invalid field. New starts no goroutine.
func New(w *warden.Warden, cfg Config) (*Middleware, error) {
	source := capacity{w, cfg.Compartment}
	if err := source.check("New", "Config"); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name          string
		value, atMost time.Duration
		zero          string
	}{
		{"Timeout", cfg.Timeout, 0, "0 (unlimited)"},
		{"Grace", cfg.Grace, 0, "0 (the default, 10s)"},
		{"RetryAfter", cfg.RetryAfter, longestRetryAfter, "0 (the default, 1s)"},
	} {
		if allowed := unit.Allowed(f.value, unit.Network, f.atMost, f.zero); allowed != "" {
			return nil, invalidField("Config."+f.name, f.value, allowed)
		}
	}
	if cfg.MinRate < 0 {
		return nil, invalidField("Config.MinRate", cfg.MinRate, "0 (the default, 4096 bytes a second) or more")
	}
	if err := cfg.bound(); err != nil {
		return nil, err
	}
	if cfg.Fallback != nil && cfg.Compartment == nil {
		return nil, invalidField("Config.Fallback", "a function", "nil without a Compartment, which bounds and counts fallbacks")
	}
	if cfg.LoadReports && (w == nil || cfg.Trusted == nil) {
		return nil, invalidField("Config.LoadReports", true, "false without a warden, whose load it is, and Trusted, who may know it")
	}
	if len(cfg.Instance) > longestInstance || !utf8.ValidString(cfg.Instance) {
		return nil, invalidField("Config.Instance", strconv.Quote(cfg.Instance), "up to 128 bytes of UTF-8")
	}
	instance := []byte(nil)
	if cfg.Instance != "" {
		instance, _ = json.Marshal(cfg.Instance) // a string: it cannot fail
	}
	if cfg.Task == nil {
		cfg.Task = func(*http.Request) warden.Task { return warden.Task{} }
	}
	slowest := pace{cmp.Or(cfg.Grace, 10*time.Second), cmp.Or(cfg.MinRate, 4096)}
	answers := answers{retryAfter: cfg.RetryAfter, rand: cfg.rand, instance: string(instance), verbose: cfg.Verbose}
	return &Middleware{capacity: source, cfg: cfg, answers: answers, pace: slowest}, nil
}

// bound completes and validates the bounds of buffered answers.
func (c *Config) bound() error {
	each, total := cmp.Or(c.BufferPerAnswer, 1<<20), cmp.Or(c.BufferTotal, 64<<20)
	switch {
	case !c.Buffered && c.BufferPerAnswer != 0:
		return invalidField("Config.BufferPerAnswer", c.BufferPerAnswer, "0 without Buffered")
	case !c.Buffered && c.BufferTotal != 0:
		return invalidField("Config.BufferTotal", c.BufferTotal, "0 without Buffered")
	case each < 0:
		return invalidField("Config.BufferPerAnswer", each, "1 or more bytes, or 0 (the default, 1 MiB)")
	case total < each:
		return invalidField(
			"Config.BufferTotal", total, fmt.Sprintf("BufferPerAnswer (%d) or more bytes, or 0 (the default, 64 MiB)", each),
		)
	}
	c.BufferPerAnswer, c.BufferTotal = each, total
	return nil
}
