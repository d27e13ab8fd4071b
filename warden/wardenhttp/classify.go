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
func (c *Config) classify(answer http.Header, r *http.Request, is *slot.Claim, timeout time.Duration) {
	is.Task = c.Task(r)
	t, now := &is.Task, time.Now()
	t.Name = named(t.Name, r)
	t.ID = requestid.Of(r.Header[requestid.TraceHTTP], []string{t.ID}, answer[requestid.HTTP], r.Header[requestid.HTTP])
	if is.Apart {
		t.Priority = is.Compartment.Criticality()
	}
	if t.Priority == decision.Normal {
		t.Priority = warden.PriorityFrom(r.Context())
	}
	if timeout > 0 {
		is.Bound(now.Add(timeout), false)
	}
	said := wire.Read(func(n wire.Name) []string { return r.Header[n.HTTP] })
	if !said.Anything() {
		return
	}
	trusted := c.Trusted != nil && c.Trusted(r)
	if said.Ranked && (trusted || said.Priority < t.Priority) {
		t.Priority = said.Priority
	}
	if said.Left > 0 {
		is.Bound(now.Add(said.Left), !trusted)
	}
}

// plainTask is the default of Config.Task.
func plainTask(r *http.Request) warden.Task {
	if r.Pattern != "" {
		return warden.Task{Name: r.Pattern}
	}
	return warden.Task{Name: r.URL.Path}
}

// named truncates a task's name and copies it if it could keep a large request alive: it may be a substring of the request
// line, a header or a body, which clients may make as long as the server reads. A route's pattern belongs to the server, and
// a short request line may be kept.
func named(name string, r *http.Request) string {
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
