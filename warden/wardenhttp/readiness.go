// SPDX-License-Identifier: Apache-2.0

// Readiness: it tells a load balancer whether this process is shutting down, not how loaded it is.

package wardenhttp

import (
	"io"
	"net/http"
	"sync/atomic"

	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
)

// Readiness is the handler of a readiness probe: 200 until Drain, 503 afterwards. An overloaded process stays ready: leaving
// would shift its load to the others, which would reject more and leave as well (cascading failure). The zero Readiness is
// ready; a nil one answers 500. Its methods are safe for concurrent use. Mount it outside the middleware, or exempt its path
// with Config.Exempt.
type Readiness struct{ draining atomic.Bool }

// Drain makes the answer 503, permanently. Keep the listeners open until the load balancer has probed again and removed this
// process; then call [http.Server.Shutdown], which waits for running and waiting requests.
// Draining a nil Readiness does nothing.
func (p *Readiness) Drain() {
	if p != nil {
		p.draining.Store(true)
	}
}

// ServeHTTP answers 200 or 503.
func (p *Readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if p == nil {
		answers{}.write(w, serverError(rpcstatus.Invalid().Reason), notMade("Readiness", "new(wardenhttp.Readiness)"))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	answer := "ready\n"
	if p.draining.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		answer = "draining\n"
	}
	_, _ = io.WriteString(w, answer)
}
