// What a request is to the warden, and what of it is the client's word.

package wardenhttp

import (
	"net/http"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/internal/place"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// classify completes what r, which is to be answered with these headers, asks for. Whoever it comes from, the shortest deadline counts, and
// a priority that is lower than ours; to have a higher one the client must be trusted.
func (c *Config) classify(answer http.Header, r *http.Request, is *place.Claim) {
	is.Task = c.Task(r)
	t, now := &is.Task, time.Now()
	t.Name = named(t.Name, r)
	t.ID = requestid.Of(r.Header[requestid.TraceHTTP], []string{t.ID}, answer[requestid.HTTP], r.Header[requestid.HTTP])
	if is.Apart {
		t.Priority = is.Compartment.Criticality()
	}
	if t.Priority == warden.Normal {
		t.Priority = warden.PriorityFrom(r.Context())
	}
	if c.Timeout > 0 {
		is.Bound(now.Add(c.Timeout), false)
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

// plainTask is Config.Task's default.
func plainTask(r *http.Request) warden.Task {
	if r.Pattern != "" {
		return warden.Task{Name: r.Pattern}
	}
	return warden.Task{Name: r.URL.Path}
}

// named cuts a task's name, and makes it one that keeps no more alive than itself: it may be a part of the request's first line, of a
// header or of a body, and clients make those as long as the server reads them. A route's pattern belongs to the server, and a short line
// may be kept.
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
