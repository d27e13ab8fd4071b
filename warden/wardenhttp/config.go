// What a middleware is made of.

package wardenhttp

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
)

// The headers in which a client may say how much its request matters and how long it will wait, if Config names no others.
// Both are understood as [Config.Trusted] says.
const (
	// DefaultPriorityHeader holds an integer, -128 to 127, or one of background, normal, high and critical.
	DefaultPriorityHeader = "Warden-Priority"
	// DefaultTimeoutHeader holds milliseconds, 1 to 86400000 (a day), in digits alone.
	DefaultTimeoutHeader = "Warden-Timeout"
)

// Config describes a [Middleware]. The zero value is meant for production. Its functions are called by many goroutines at
// once, before the request asks for its place; if one of them panics, that is the panic of the request, which then
// holds nothing.
type Config struct {
	// Task says what a request is to the warden. nil: a task of normal priority that is called by the pattern of the
	// [http.ServeMux] in front of the middleware, or by the request's path if there is none.
	//
	// What is refused is remembered for a while with its Name, which is cut to 256 bytes.
	Task func(*http.Request) warden.Task
	// Timeout is how long after it arrived a request is worth an answer, 0 or more; 0: for ever. A deadline of Task's or
	// the context's counts as well: the earlier one. As any deadline it only prevents starting.
	Timeout time.Duration
	// Exempt requests need no place and never wait: health checks. nil: none.
	Exempt func(*http.Request) bool
	// Compartment says in which compartment a request is to run. nil: in none, the warden is asked. If it is set, requests
	// ask the compartment instead: its Criticality is their priority, and what they have of a deadline ends their context.
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

	// Trusted requests are believed what their headers say. From all others, a priority is taken only if it is lower than
	// Task's, and a timeout not at all. nil: nobody is. A header that is there more than once, or that is anything but
	// what is described at its default name, is as if it were not there, whoever sent it.
	Trusted func(*http.Request) bool
	// PriorityHeader and TimeoutHeader are the names of the headers; "": DefaultPriorityHeader and DefaultTimeoutHeader.
	PriorityHeader, TimeoutHeader string

	// RetryAfter is how long a refused client is asked to stay away if the limiter cannot tell, up to an hour; 0: a second.
	RetryAfter time.Duration
	// Rand draws numbers in [0, 1) and may be called by many goroutines at once; nil: math/rand/v2. It spreads
	// Retry-After.
	Rand func() float64
	// Answer, if not nil, may answer a refused request itself, in the form that its clients expect, and reports whether it did; if not, nothing may have
	// been written. The error is one that WriteError takes. Package wardenconnect has one for the protocols of RPCs.
	Answer func(w http.ResponseWriter, r *http.Request, err error) bool
	// Verbose adds to a refusal everything that is known about it, for clients who may know how things are inside.
	Verbose bool
}

const longestRetryAfter = time.Hour

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
	for _, h := range []struct {
		field, otherwise string
		name             *string
	}{
		{"PriorityHeader", DefaultPriorityHeader, &cfg.PriorityHeader},
		{"TimeoutHeader", DefaultTimeoutHeader, &cfg.TimeoutHeader},
	} {
		if *h.name == "" {
			*h.name = h.otherwise
		}
		if !token(*h.name) {
			return nil, &warden.InvalidError{Field: "wardenhttp.Config." + h.field, Value: strconv.Quote(*h.name), Allowed: "the name of a header"}
		}
		*h.name = http.CanonicalHeaderKey(*h.name)
	}
	if cfg.TimeoutHeader == cfg.PriorityHeader {
		return nil, &warden.InvalidError{Field: "wardenhttp.Config.TimeoutHeader", Value: strconv.Quote(cfg.TimeoutHeader), Allowed: "another name than PriorityHeader's"}
	}
	if cfg.Task == nil {
		cfg.Task = plainTask
	}
	slowest := pace{cmp.Or(cfg.Grace, 10*time.Second), cmp.Or(cfg.MinRate, 4096)}
	return &Middleware{capacity: who, cfg: cfg, answers: answers{cfg.RetryAfter, cfg.Rand, cfg.Verbose}, pace: slowest}, nil
}

// token says whether s can be the name of a header (RFC 9110, 5.6.2).
func token(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
