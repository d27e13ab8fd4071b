// What a request is to the warden, and what of it is the client's word.

package wardenhttp

import (
	"net/http"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/internal/place"
	"github.com/stopbank/stopbank/warden/internal/wire"
)

// classify completes what r asks for. Whoever it comes from, the shortest deadline counts, and a priority that is lower than ours; to
// have a higher one the client must be trusted.
func (c *Config) classify(r *http.Request, is *place.Claim) {
	is.Task = c.Task(r)
	t, now := &is.Task, time.Now()
	t.Name = shortened(t.Name, r.RequestURI)
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

// shortened is a name that keeps little memory alive: it may well be a part of the request's first line, and a client can
// make that as long as the server reads headers.
func shortened(name, line string) string {
	const longest = 256
	if max(len(name), len(line)) <= longest {
		return name
	}
	return strings.Clone(name[:min(len(name), longest)])
}
