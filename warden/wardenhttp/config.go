// What a middleware is made of.

package wardenhttp

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
)

// Config describes a [Middleware]. The zero value is meant for production. Its functions are called by many goroutines at
// once, before the request asks for its place; if one of them panics, that is the panic of the request, which then
// holds nothing.
type Config struct {
	// Task says what a request is to the warden. nil: a task that is called by the pattern of the [http.ServeMux] in front of the
	// middleware, or by the request's path if there is none. Normal priority means that of the context ([warden.WithPriority]).
	//
	// What is refused is remembered for a while with its Name, which is cut to 256 bytes.
	//
	// Its ID connects the answer to a refusal with the log, the trace and the console. A task without one, or with one that is not 1 to 128
	// visible ASCII characters without quotes and backslashes, gets the first such that there is: the X-Request-Id that something in front has
	// set in the answer, that of the request, and the trace-id of its traceparent; else one that is made here. Whoever it comes from,
	// it is text, and nothing is decided by it.
	Task func(*http.Request) warden.Task
	// Timeout is how long after it arrived a request is worth an answer, 0 or more; 0: for ever. It is not started any later, and its
	// context ends then, under a warden and in compartments. A deadline of Task's, the context's or the client's counts as
	// well: the earliest.
	Timeout time.Duration
	// Exempt requests need no place and never wait: health checks. nil: none.
	Exempt func(*http.Request) bool
	// Compartment says in which compartment a request is to run. nil: in none, the warden is asked. If it is set, requests
	// ask the compartment instead, its Criticality is their priority, and of Task the deadline alone is used.
	// One for which it returns nil is answered 500, because a compartment that the set does not know is a mistake.
	Compartment func(*http.Request) *bulkhead.Compartment

	// Buffered keeps each answer in memory until its handler is done, as net/http's TimeoutHandler does. So a request whose time is up
	// is answered 504 at once, although its handler may run on: it holds its place until it is done, and what it writes then
	// goes nowhere. Handlers run on goroutines of their own, cannot flush or hijack, and give their place back before the client
	// has read the answer.
	Buffered bool
	// Grace is how long a client may keep a handler waiting, for its body or until it reads the answer, 0 or more; 0: 10 s.
	// MinRate is how many bytes a second of either, 0 or more, earn that time back; 0: 4096. Nothing else counts: neither the time
	// in which the handler computes, nor that of an event stream without events. A client that is slower is cut off: Read and
	// Write return [ErrSlowPeer], and if the handler answers nothing, the answer is 408. A handler that
	// sets a deadline through [http.ResponseController] rules that direction from then on, as one that hijacks does the connection.
	Grace   time.Duration
	MinRate int

	// Trusted requests are believed a priority that is higher than Task's. Deadlines that are shorter, and priorities that are lower,
	// are believed of everybody: the one gives up what others may have, the other leaves sooner. A stranger's deadline ends its
	// request as if the client had gone away then; that of a trusted client counts as the service's. nil: nobody is trusted. Which
	// headers are understood is in docs/wardenhttp.md; one that is there more than once, or is anything but what is described
	// there, is as if it were not there, whoever sent it.
	Trusted func(*http.Request) bool

	// RetryAfter is how long a refused client is asked to stay away if the limiter cannot tell, up to an hour; 0: a second.
	RetryAfter time.Duration
	// Rand draws numbers in [0, 1) and may be called by many goroutines at once; nil: math/rand/v2. It spreads
	// Retry-After.
	Rand func() float64
	// Answer, if not nil, may answer a refused request itself, in the form that its clients expect, and reports whether it did; if not, nothing may have
	// been written. The error is one that WriteError takes. Package wardenconnect has one for the protocols of RPCs.
	Answer func(w http.ResponseWriter, r *http.Request, err error) bool
	// Instance is the name of this process, such as its pod's, that refused clients are told as server_instance: up to 128 bytes of UTF-8;
	// "": they are told none.
	Instance string
	// Verbose adds to a refusal everything that is known about it, for clients who may know how things are inside.
	Verbose bool
}

const (
	longestRetryAfter = time.Hour
	longestInstance   = 128 // bytes
)

// Middleware lets requests to handlers ask a warden for their place. It may be used by any number of goroutines, and must come from
// [New]: the zero Middleware answers everything with 500.
type Middleware struct {
	capacity capacity
	cfg      Config
	answers  answers
	pace     pace
	noticed  atomic.Bool // what should be mounted outside
}

// New returns a Middleware that asks w for places, or the compartments of cfg.Compartment: then w, which may be nil, is the one
// whose decisions the set is told (warden.Config.Also), and requests see to it that it takes its samples. The error, a
// [*warden.InvalidError], names the field that is wrong. It starts no goroutine.
func New(w *warden.Warden, cfg Config) (*Middleware, error) {
	who := capacity{w, cfg.Compartment}
	if err := who.check(); err != nil {
		return nil, err
	}
	switch {
	case cfg.Timeout < 0:
		return nil, &warden.InvalidError{Field: "wardenhttp.Config.Timeout", Value: cfg.Timeout, Allowed: "0 (for ever) or more"}
	case cfg.Grace < 0:
		return nil, &warden.InvalidError{Field: "wardenhttp.Config.Grace", Value: cfg.Grace, Allowed: "0 (10s) or more"}
	case cfg.MinRate < 0:
		return nil, &warden.InvalidError{Field: "wardenhttp.Config.MinRate", Value: cfg.MinRate, Allowed: "0 (4096 bytes a second) or more"}
	case cfg.RetryAfter < 0 || cfg.RetryAfter > longestRetryAfter:
		return nil, &warden.InvalidError{Field: "wardenhttp.Config.RetryAfter", Value: cfg.RetryAfter, Allowed: "0 (a second) to 1h"}
	}
	if len(cfg.Instance) > longestInstance || !utf8.ValidString(cfg.Instance) {
		return nil, &warden.InvalidError{Field: "wardenhttp.Config.Instance", Value: strconv.Quote(cfg.Instance), Allowed: "up to 128 bytes of UTF-8"}
	}
	instance := []byte(nil)
	if cfg.Instance != "" {
		instance, _ = json.Marshal(cfg.Instance) // a string: it cannot fail
	}
	if cfg.Task == nil {
		cfg.Task = plainTask
	}
	slowest := pace{cmp.Or(cfg.Grace, 10*time.Second), cmp.Or(cfg.MinRate, 4096)}
	told := answers{retryAfter: cfg.RetryAfter, rand: cfg.Rand, instance: string(instance), verbose: cfg.Verbose}
	return &Middleware{capacity: who, cfg: cfg, answers: told, pace: slowest}, nil
}
