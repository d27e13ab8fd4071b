// SPDX-License-Identifier: Apache-2.0

// The handler: its configuration, and a request on its way to the next handler.

package wardencaddy

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/internal/wire"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func init() { //nolint:gochecknoinits // as Caddy finds modules
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterHandlerDirective("stopbank", parseHandler)
	httpcaddyfile.RegisterDirectiveOrder("stopbank", httpcaddyfile.Before, "reverse_proxy")
}

// Handler lets a request go on when it gets a slot, in the order of priorities, and answers it with a reason if it cannot get
// one in time: 503 with Retry-After, 429 for a tenant that has used up its share, 504 if its time is up. Each field may be
// empty; Timeout and Priorities are worth setting. All requests are one kind of work. The upstream's processors are elsewhere:
// only execution times count, and the memory of this process.
type Handler struct {
	// Name is the name of the warden in metrics, logs and on the console, 1 to 128 bytes; default: caddy. Handlers of a
	// configuration that have the same name share its warden; all but Timeout, Priorities, Tenant, Exempt, Trusted, Grace, and the
	// matchers and placeholders of Compartments, must be equal.
	Name string `json:"name,omitempty"`
	// Timeout is the time from a request's arrival within which an answer is useful, 1 ms or more: it is not started after
	// that, and answered 504. Default: unlimited. A client's own shorter deadline counts as well.
	Timeout caddy.Duration `json:"timeout,omitempty"`
	// Queue is the maximum number of waiting requests, 1 or more. Default: 1024. Not with Compartments, which have their own.
	Queue int `json:"queue,omitempty"`
	// Min and Max bound the number of requests at a time, Initial is the number at the start. Default: 1, 65,536, and the
	// largest of 16, one per processor of this machine, and Total. If the number of the upstream's workers is known, it is a
	// good Max.
	Min     int `json:"min,omitempty"`
	Max     int `json:"max,omitempty"`
	Initial int `json:"initial,omitempty"`
	// Mode is enforce, dry_run (everything passes; metrics and log say what would have been rejected) or bypass (everything passes).
	// Default: enforce.
	Mode string `json:"mode,omitempty"`
	// Priorities are tried in order; the first whose matchers match decides. None: normal. Not with Compartments.
	Priorities []PriorityRule `json:"priorities,omitempty"`
	// Tenant has placeholders whose value for a request is its tenant, such as {http.auth.user.id}: something that was checked, since who
	// invents keys has as many shares. Among requests of one priority, slots are shared by tenants. Requests without a value are one tenant
	// together, with those that have a header, query parameter or cookie of the placeholder itself more than once. Not with Compartments,
	// which have their own.
	Tenant string `json:"tenant,omitempty"`
	// ExemptRaw matches requests that need no slot and never wait, such as probes.
	ExemptRaw caddyhttp.RawMatcherSets `json:"exempt,omitempty" caddy:"namespace=http.matchers"`
	// Trusted are the addresses and networks (CIDR) of peers that may raise their priority by the header Warden-Priority, and whose
	// deadlines are the service's. The address is that of the connection, not one that a header claims.
	Trusted []string `json:"trusted,omitempty"`
	// Grace is how long a client may keep a request waiting, and how long an upstream may keep the slot of a request that has ended,
	// 1 ms or more. Default: 10 s.
	Grace caddy.Duration `json:"grace,omitempty"`
	// Total is the number of requests at a time in all Compartments, 1 or more; required with them.
	Total int `json:"total,omitempty"`
	// Compartments keep kinds of requests apart. The first whose matchers match is the request's; the last one has none.
	Compartments []Compartment `json:"compartments,omitempty"`

	exempt     caddyhttp.MatcherSets
	trusted    prefixes
	logger     *zap.Logger
	middleware *wardenhttp.Middleware
}

// CaddyModule returns the name of the module.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.stopbank", New: func() caddy.Module { return new(Handler) }}
}

// Provision makes the handler ready for use. The error, a [*warden.InvalidError], names the invalid field, or is that of a matcher.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	if err := h.check(); err != nil {
		return err
	}
	if err := loadMatchers(ctx, h, "ExemptRaw", &h.exempt); err != nil {
		return err
	}
	for i := range h.Priorities {
		if err := loadMatchers(ctx, &h.Priorities[i], "MatcherSetsRaw", &h.Priorities[i].matchers); err != nil {
			return err
		}
	}
	for i := range h.Compartments {
		if err := loadMatchers(ctx, &h.Compartments[i], "MatcherSetsRaw", &h.Compartments[i].matchers); err != nil {
			return err
		}
	}
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	s, err := app.join(h)
	if err != nil {
		return err
	}
	h.middleware, err = wardenhttp.New(s.warden, h.http(s.set))
	return err
}

// http is the configuration of the middleware in front of set, which is nil without compartments.
func (h *Handler) http(set *bulkhead.Set) wardenhttp.Config {
	cfg := wardenhttp.Config{
		Task: func(r *http.Request) warden.Task {
			return warden.Task{Priority: h.priority(r), Tenant: tenantOf(h.Tenant, r)}
		},
		Timeout: time.Duration(h.Timeout), Grace: time.Duration(h.Grace), Trusted: h.trusted.has,
	}
	if len(h.ExemptRaw)+len(h.exempt) > 0 {
		cfg.Exempt = func(r *http.Request) bool { return h.matches(h.exempt, r) }
	}
	if set != nil {
		cfg.Compartment = func(r *http.Request) *bulkhead.Compartment { return h.compartment(set, r) }
	}
	return cfg
}

// ServeHTTP lets the request go on, or answers it. An error of the next handler is returned unless the request was answered
// already because its time was up. It allocates a request's state besides what the middleware does.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c := &call{next: next}
	if h.middleware.Serve(w, r, c) {
		return nil
	}
	return c.err
}

// call is the rest of the chain for one request.
type call struct {
	next caddyhttp.Handler
	err  error
}

// ServeHTTP calls the next handler. What the client has claimed about its priority goes no further: the upstream is told what
// counted here.
func (c *call) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	delete(r.Header, wire.PriorityHTTP)
	wire.Keep(r.Header)
	if p := warden.PriorityFrom(ctx); p != decision.Normal {
		r.Header.Set(wire.PriorityHTTP, strconv.Itoa(int(p)))
	}
	due, strangers, bounded := timelimit.Due(ctx)
	if !strangers {
		delete(r.Header, wire.UntrustedHTTP)
	}
	if bounded {
		r.Header.Set(wire.TimeoutHTTP, strconv.FormatInt(max(1, time.Until(due).Milliseconds()), 10))
	}
	if r.Body != nil && r.Body != http.NoBody {
		u := &upload{ReadCloser: r.Body}
		r.Body = u
		caddyhttp.SetVar(ctx, uploadVar, u)
	}
	c.err = c.next.ServeHTTP(w, r)
	if later, ok := w.(interface{ AnswerLater(status int) }); ok && c.err != nil { // Caddy answers when the middleware is done
		status := http.StatusInternalServerError
		var of caddyhttp.HandlerError
		if errors.As(c.err, &of) && of.StatusCode > 0 {
			status = of.StatusCode
		}
		later.AnswerLater(status)
	}
}

// Interfaces that Caddy looks for.
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
