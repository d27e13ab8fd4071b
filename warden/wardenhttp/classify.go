// SPDX-License-Identifier: Apache-2.0

// A request's task: name, ID, priority and deadline, some of them from the client's headers.

package wardenhttp

import (
	"net/http"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/slot"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// classify fills in the task of r, whose answer has these headers so far. The shortest deadline applies, whatever its source,
// and so does a lower priority; only a trusted client may raise its priority. The service's own timeout is 0 if there is none.
func (c *Config) classify(answer http.Header, r *http.Request, claim *slot.Claim, timeout time.Duration) {
	claim.Task = c.Task(r)
	t, now := &claim.Task, time.Now()
	t.Name = boundName(t.Name, r)
	t.ID = requestid.Of(r.Header[requestid.TraceHTTP], []string{t.ID}, answer[requestid.HTTP], r.Header[requestid.HTTP])
	if claim.FromCompartment {
		t.Priority = claim.Compartment.Criticality()
	}
	if t.Priority == decision.Normal {
		t.Priority = warden.PriorityFrom(r.Context())
	}
	if timeout > 0 {
		claim.Bound(now.Add(timeout), false)
	}
	headers := wire.Read(func(n wire.Name) []string { return r.Header[n.HTTP] })
	if !headers.Any() {
		return
	}
	trusted := c.Trusted != nil && c.Trusted(r)
	if headers.HasPriority && (trusted || headers.Priority < t.Priority) {
		t.Priority = headers.Priority
	}
	if headers.Timeout > 0 {
		claim.Bound(now.Add(headers.Timeout), !trusted)
	}
}

// defaultTask is the default of Config.Task.
func defaultTask(r *http.Request) warden.Task {
	if r.Pattern != "" {
		return warden.Task{Name: r.Pattern}
	}
	return warden.Task{Name: r.URL.Path}
}

// boundName truncates a task's name and copies it if it could keep a large request alive: it may be a substring of the request
// line, a header or a body, which clients may make as long as the server reads. A route's pattern belongs to the server, and
// a short request line may be kept.
func boundName(name string, r *http.Request) string {
	const longest = 256
	switch {
	case len(name) > longest:
	case name == r.Pattern:
		return name
	case len(r.Method)+len(r.RequestURI) <= longest && r.URL != nil && name == r.URL.Path:
		return name
	}
	return strings.Clone(name[:min(len(name), longest)])
}
