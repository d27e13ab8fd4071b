// A mounting mistake that would silently break the concurrency limit is reported in the server's log.

package wardenhttp

import (
	"net/http"
	"runtime"
)

// notice looks for net/http's TimeoutHandler among its callers, once a status of 503 is written: after its timeout it returns
// and leaves its handler running without a slot.
func (m *Middleware) notice(r *http.Request) {
	if m.noticed.Load() {
		return
	}
	var callers [8]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function != "net/http.(*timeoutHandler).ServeHTTP" {
			continue
		}
		if !m.noticed.Swap(true) {
			logf(r, "wardenhttp: http.TimeoutHandler inside the middleware leaves handlers running that hold no slot: "+
				"mount it outside, or use Config.Buffered (this is logged once)")
		}
		return
	}
}
