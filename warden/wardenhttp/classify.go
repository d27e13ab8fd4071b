// SPDX-License-Identifier: Apache-2.0

// A request's task: name, ID, priority and deadline, some of them from the client's headers.

package wardenhttp

import (
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/slot"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// classify fills in the task of r, which next serves and whose answer has these headers so far. The shortest deadline applies,
// whatever its source, and so does a lower priority; only a trusted client may raise its priority. The service's own timeout is 0
// if there is none. It returns what r says of its time and its priority.
func (c *Config) classify(answer http.Header, r *http.Request, next http.Handler, claim *slot.Claim, timeout time.Duration) wire.Said {
	claim.Task = c.Task(r)
	claim.Arrived, claim.Service = time.Now(), timeout
	t := &claim.Task
	t.Name = nameOf(t.Name, r, next)
	t.ID = requestid.Of(r.Header[requestid.TraceHTTP], []string{t.ID}, answer[requestid.HTTP], r.Header[requestid.HTTP])
	if claim.FromCompartment {
		t.Priority = claim.Compartment.Criticality()
	}
	if t.Priority == decision.Normal {
		t.Priority = warden.PriorityFrom(r.Context())
	}
	headers := wire.Read(func(n wire.Name) []string { return r.Header[n.HTTP] })
	if !headers.Any() {
		return headers.Said
	}
	trusted := c.Trusted != nil && c.Trusted(r)
	if headers.HasPriority && (trusted || headers.Priority < t.Priority) {
		t.Priority = headers.Priority
	}
	if headers.Timeout > 0 {
		claim.Tell(headers.Timeout, trusted && !headers.Untrusted)
	}
	return headers.Said
}

// redirect is the type of the handlers with which a mux redirects.
var redirect = reflect.TypeOf(http.RedirectHandler("", 0)) //nolint:gochecknoglobals // constant

// routeOf returns the pattern that r matches in next, if that is a mux, or has matched in one in front; "" if neither: what a
// client chose is no name of a kind of work, such as the path that a mux returns for a CONNECT that it redirects.
func routeOf(r *http.Request, next http.Handler) string {
	if mux, ok := next.(*http.ServeMux); ok && r.URL != nil {
		h, pattern := mux.Handler(r)
		if pattern != "" && !(r.Method == http.MethodConnect && reflect.TypeOf(h) == redirect) {
			return pattern
		}
	}
	return r.Pattern
}

// nameOf returns the task's name, that of the route if it has none. All but a route's short one is copied: it may be a substring of
// the request line, a header or a body, which clients may make as long as the server reads, and would keep them alive.
func nameOf(name string, r *http.Request, next http.Handler) string {
	const longest = 256
	route := r.Pattern
	if name == "" {
		route = routeOf(r, next)
		name = route
	}
	if name == route && len(route) <= longest {
		return route
	}
	return strings.Clone(name[:min(len(name), longest)])
}
