// SPDX-License-Identifier: Apache-2.0

// Exemplars: in a histogram of responses, requests to look at.

package wardenprom

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/warden/limiter"
)

const (
	late        = time.Second // from then on, a response is worth an exemplar
	oneIn       = 128         // so is one in so many, at random
	exemplarGap = 10          // milliseconds between two exemplars of a series, at least
)

// response is a histogram with exemplars.
type response struct {
	prometheus.Observer
	last atomic.Int64 // when the last exemplar was, in milliseconds since 1970
}

// observe counts a task that has ended. telling: it is worth an exemplar.
func (r *response) observe(e *limiter.Event, telling bool) {
	took := e.Waited + e.Took
	if e.Task.ID != "" && (telling || took > late || rand.Uint32N(oneIn) == 0) && r.due(e.At.UnixMilli()) {
		if h, ok := r.Observer.(prometheus.ExemplarObserver); ok {
			h.ObserveWithExemplar(took.Seconds(), exemplar(e.Task.ID))
			return
		}
	}
	r.Observe(took.Seconds())
}

// due reports whether an exemplar may be added now: whoever floods a service does not make it write millions of them.
func (r *response) due(now int64) bool {
	last := r.last.Load()
	return (now < last || now-last >= exemplarGap) && r.last.CompareAndSwap(last, now)
}

// exemplar returns the labels of a task. A histogram panics for such as are not valid UTF-8, or have more than 128 characters with
// their names.
func exemplar(id string) prometheus.Labels {
	const longest = prometheus.ExemplarMaxRunes - len("request_id")
	if len(id) > longest {
		id = id[:longest]
	}
	labels := prometheus.Labels{"request_id": strings.ToValidUTF8(id, "\uFFFD")}
	if isTrace(id) {
		labels["trace_id"] = id
	}
	return labels
}

// isTrace reports whether an ID has the form of a W3C trace-id, as one taken from traceparent has.
func isTrace(id string) bool {
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" && strings.Trim(id, "0") != ""
}
