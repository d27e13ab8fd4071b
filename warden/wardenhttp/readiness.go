// Readiness: what a load balancer is told of this process, which is whether it stays, and not how much it has to do.

package wardenhttp

import (
	"io"
	"net/http"
	"sync/atomic"
)

// Readiness is the handler of a readiness probe: 200 until Drain, 503 from then on. A process that refuses requests stays ready: one that
// left would leave its share to the others, who would refuse more and leave as well. The zero Readiness is ready. Its methods may be
// called by any number of goroutines. Mount it outside the middleware, or let Config.Exempt know its path.
type Readiness struct{ draining atomic.Bool }

// Drain makes the answer 503, for good. The listeners are to stay open until whoever asks has asked again and has told everybody: then
// [http.Server.Shutdown] waits for the requests that run and for those that wait for their place.
func (p *Readiness) Drain() { p.draining.Store(true) }

// ServeHTTP answers.
func (p *Readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	answer := "ready\n"
	if p.draining.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		answer = "draining\n"
	}
	_, _ = io.WriteString(w, answer)
}
