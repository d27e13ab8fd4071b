// Decisions of a ledger, counted by its observer.

package wardenprom

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/warden/internal/facts"
)

// LedgerDecisions counts the decisions of one ledger by operation and result. It is a prometheus.Collector; the
// ledger's observer calls Count. It must come from [NewLedgerDecisions].
type LedgerDecisions struct {
	counts *prometheus.CounterVec

	mu    sync.RWMutex // guards known
	known map[[2]string]prometheus.Counter
}

// mostDecisions bounds the pairs of operation and result: a ledger has about twenty.
const mostDecisions = 100

// NewLedgerDecisions returns counters for the ledger of that name: valid UTF-8, 1 to 128 bytes. The error is an
// [*InvalidError].
func NewLedgerDecisions(ledger string) (*LedgerDecisions, error) {
	if err := checkLabel("ledger", ledger); err != nil {
		return nil, err
	}
	return &LedgerDecisions{
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: leaseDecisions, Help: helpLeaseDecisions, ConstLabels: prometheus.Labels{"ledger": ledger},
		}, []string{"operation", "result"}),
		known: map[[2]string]prometheus.Counter{},
	}, nil
}

// Count counts one decision: operation is the event's Op, result its status or the kind of its error. Neither may be
// unbounded, such as a domain; pairs beyond a hundred count as "other". It allocates nothing for a known pair, and may wait
// microseconds for a mutex.
func (d *LedgerDecisions) Count(operation, result string) {
	pair := [2]string{operation, result}
	d.mu.RLock()
	c, ok := d.known[pair]
	d.mu.RUnlock()
	if !ok {
		c = d.meet(pair)
	}
	c.Inc()
}

func (d *LedgerDecisions) meet(pair [2]string) prometheus.Counter {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= mostDecisions {
		return d.counts.WithLabelValues("other", "other")
	}
	c := d.counts.WithLabelValues(facts.Clean(pair[0]), facts.Clean(pair[1]))
	d.known[pair] = c
	return c
}

// Describe sends the metric.
func (d *LedgerDecisions) Describe(ch chan<- *prometheus.Desc) { d.counts.Describe(ch) }

// Collect sends the metric.
func (d *LedgerDecisions) Collect(ch chan<- prometheus.Metric) { d.counts.Collect(ch) }
