// What a request is to the warden, and what of it is the client's word.

package wardenhttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden"
)

// classify is the task of a request.
func (c *Config) classify(r *http.Request) warden.Task {
	t := c.Task(r)
	t.Name = named(t.Name, r)
	p, ranked := priority(only(r.Header, c.PriorityHeader))
	left := timeout(only(r.Header, c.TimeoutHeader))
	trusted := (ranked || left > 0) && c.Trusted != nil && c.Trusted(r)
	if ranked && (trusted || p < t.Priority) {
		t.Priority = p
	}
	if !trusted {
		left = 0
	}
	if c.Timeout > 0 && (left == 0 || c.Timeout < left) {
		left = c.Timeout
	}
	if left > 0 {
		if due := time.Now().Add(left); t.Deadline.IsZero() || due.Before(t.Deadline) {
			t.Deadline = due
		}
	}
	return t
}

// only is the value of a header that is there once; else "", which means nothing in any of them. Two values may be two
// people's, and there is no telling which is whose.
func only(h http.Header, name string) string {
	if v := h[name]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// priority reads a priority. Its longest form is "background".
func priority(s string) (warden.Priority, bool) {
	switch s {
	case "background":
		return warden.Background, true
	case "normal":
		return warden.Normal, true
	case "high":
		return warden.High, true
	case "critical":
		return warden.Critical, true
	}
	if len(s) == 0 || len(s) > len("-128") || s[0] == '+' {
		return 0, false // not to be parsed: the error would copy it
	}
	n, err := strconv.ParseInt(s, 10, 8)
	return warden.Priority(n), err == nil
}

// timeout reads a number of milliseconds; 0: there is none.
func timeout(s string) time.Duration {
	const longest = 86400000
	if len(s) > len("86400000") {
		return 0
	}
	ms := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0
		}
		ms = 10*ms + int(c-'0')
	}
	if ms > longest {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
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
