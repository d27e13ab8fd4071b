// Every metric by name: what it is, in which unit, with which labels.

package wardenprom

import "github.com/prometheus/client_golang/prometheus"

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// family is one metric of a Collector.
type family struct {
	name   string
	kind   prometheus.ValueType
	help   string
	labels []string
}

// families are the metrics of a Collector, all of them.
func families() []family {
	var all []family
	group := func(prefix string, labels []string, of ...family) {
		for _, f := range of {
			f.name = prefix + f.name
			f.labels = append(append([]string(nil), labels...), f.labels...)
			all = append(all, f)
		}
	}
	by := func(labels ...string) []string { return labels }

	group("stopbank_limiter_", by("limiter"),
		family{"running", gauge, "Tasks that hold a place.", nil},
		family{"queued", gauge, "Tasks that wait.", nil},
		family{"target", gauge, "Tasks that may run at once, by the decision that rules.", nil},
		family{"submitted_total", counter, "Tasks that asked to run.", nil},
		family{"executed_total", counter, "Tasks that ran and ended.", nil},
		family{"rejected_total", counter, "Tasks that were refused, by reason.", by("reason")},
		family{"canceled_total", counter, "Tasks whose context was canceled before they started.", nil},
		family{"foreign_panics_total", counter, "Panics of the observer and of slots that were contained.", nil},
	)
	group("stopbank_warden_", by("warden"),
		family{"samples_total", counter, "Samples taken, by the ticker or by requests because the ticker was late.", by("taken_by")},
		family{"largest_sample_gap_seconds", gauge, "The longest time between two samples so far.", nil},
		family{"panics_total", counter, "Panics of sampler, controller and target that were contained.", nil},
	)
	group("stopbank_control_", by("warden"),
		family{"decisions_total", counter, "Decisions so far: the number of the last one.", nil},
		family{"decision_timestamp_seconds", gauge, "When control judged last, in seconds since 1970.", nil},
		family{"decision_valid_seconds", gauge, "How long the last decision holds; 0: until the next.", nil},
		family{"target", gauge, "Tasks that may run at once, by the last decision.", nil},
		family{"shed_ratio", gauge, "Share of those that would have to wait that is to be refused.", nil},
		family{"expected_execution_seconds", gauge, "Time that a task needs as control judges it; 0: unknown.", nil},
		family{"reason", gauge, "1 for each reason of the last decision.", by("reason")},
	)
	group("stopbank_monitor_", by("warden"),
		family{"utilization_ratio", gauge, "Processor time used of that allowed, in the last sample.", nil},
		family{"throttled_ratio", gauge, "Share of time in which the cgroup was throttled, in the last sample.", nil},
		family{"runnable_per_processor", gauge, "Goroutines that wait for a processor, per processor, in the last sample.", nil},
		family{"lag_seconds", gauge, "Scheduling delay of goroutines in the last sample, by percentile.", by("percentile")},
		family{"service_seconds", gauge, "Execution time of the tasks that ended in the last sample, by percentile.", by("percentile")},
		family{"service_throughput", gauge, "Tasks that ended per second, in the last sample.", nil},
		family{"service_concurrency", gauge, "Tasks that ran at once on average, in the last sample.", nil},
	)
	group("stopbank_bulkhead_", by("set"),
		family{"places", gauge, "Places of the set, by its plan.", nil},
		family{"effective_places", gauge, "Places that the decision which rules leaves of them.", nil},
		family{"in_flight", gauge, "Places that are held.", nil},
		family{"plan_revision", gauge, "Number of the plan in force.", nil},
		family{"decision_stale", gauge, "1 if the decision has outlived its validity, else 0.", nil},
		family{"observer_panics_total", counter, "Panics of the observer that were contained.", nil},
	)
	group("stopbank_compartment_", by("set", "compartment"),
		family{"in_flight", gauge, "Places that are held.", nil},
		family{"queued", gauge, "Calls that wait.", nil},
		family{"queue_limit", gauge, "Calls that may wait; with tenants, of each tenant.", nil},
		family{"guaranteed", gauge, "Guaranteed places, by the plan.", nil},
		family{"lendable", gauge, "Guaranteed places that others may use while they are idle, by the plan.", nil},
		family{"limit", gauge, "Places that it may have at most, by the plan.", nil},
		family{"effective_guaranteed", gauge, "Guaranteed places that the decision which rules leaves.", nil},
		family{"effective_limit", gauge, "Places that it may have at most under the decision which rules.", nil},
		family{"lent", gauge, "Guaranteed places that others use.", nil},
		family{"borrowed", gauge, "Places that it uses beyond its guarantee.", nil},
		family{"criticality", gauge, "As configured, -128 to 127; 127 is critical.", nil},
		family{"healthy", gauge, "1 if the compartment is well, else 0.", nil},
		family{"rejection_ratio", gauge, "Share of the last minute's calls that were refused, for any reason but their caller's cancel.", nil},
		family{"recent_execution_seconds", gauge, "Execution time of the functions that returned in the last minute, by percentile.", by("percentile")},
		family{"submitted_total", counter, "Calls.", nil},
		family{"admitted_total", counter, "Functions that were called.", nil},
		family{"finished_total", counter, "Functions that returned.", nil},
		family{"answered_total", counter, "Callers that were answered, by outcome, before any fallback.", by("outcome")},
		family{"rejected_total", counter, "Calls that were refused on arrival, by reason.", by("reason")},
		family{"left_total", counter, "Calls that waited and left without a place, by reason.", by("reason")},
		family{"abandoned_running", gauge, "Functions that run although their caller is gone.", nil},
		family{"abandoned_total", counter, "Callers that were gone before their function returned.", nil},
		family{"late_panics_total", counter, "Panics of such functions, contained.", nil},
		family{"degraded_total", counter, "Calls that a fallback answered.", nil},
		family{"fallbacks_in_flight", gauge, "Fallbacks that run.", nil},
		family{"fallbacks_failed_total", counter, "Fallbacks that ended with an error or a panic.", nil},
		family{"fallbacks_refused_total", counter, "Fallbacks that were not called because too many ran.", nil},
		family{"tenants", gauge, "Tenants that are told apart; missing for a compartment without tenants.", nil},
		family{"tenants_active", gauge, "Tenants with calls under way.", nil},
		family{"tenants_limit", gauge, "Tenants that can be told apart.", nil},
		family{"tenants_evicted_total", counter, "Idle tenants that were forgotten.", nil},
		family{"tenants_overflowed_total", counter, "Calls of tenants that could not be told apart.", nil},
	)
	group("stopbank_admission_", by("gate"),
		family{"limit", gauge, "Operations that may be in flight.", nil},
		family{"in_flight", gauge, "Operations in flight.", nil},
		family{"admitted_total", counter, "Operations that were admitted.", nil},
		family{"released_total", counter, "Operations that ended.", nil},
		family{"rejected_total", counter, "Operations that were refused, by reason.", by("reason")},
		family{"observer_panics_total", counter, "Panics of the observer that were contained.", nil},
	)
	group("stopbank_lease_", by("ledger"),
		family{"held", gauge, "Domains under lease.", nil},
		family{"oldest_held_seconds", gauge, "Age of the oldest lease; 0: there is none.", nil},
		family{"ready", gauge, "Domains without a lease in which something waits.", nil},
	)
	group("stopbank_dispatch_", by("dispatcher"),
		family{"domains", gauge, "Domains with unfinished work, by what they wait for.", by("state")},
		family{"buffered", gauge, "Records that were fetched and are not done.", nil},
		family{"oldest_buffered_seconds", gauge, "Age of the oldest of them; 0: there is none.", nil},
		family{"paused", gauge, "1 if fetching waits for room, else 0.", nil},
		family{"records_total", counter, "Records that are done, by result.", by("result")},
		family{"retries_total", counter, "Failures that led to a retry.", nil},
		family{"dead_letters_total", counter, "Records given up whose dead letter was accepted.", nil},
		family{"reclaimed_total", counter, "Leases taken from somebody else.", nil},
		family{"lost_total", counter, "Domains lost to somebody else.", nil},
		family{"floor_offset", gauge, "The lowest offset that may not be done.", nil},
		family{"committed_offset", gauge, "What the source was told of the floor.", nil},
		family{"lag_offsets", gauge, "Offsets from the floor to the end of the source; missing if it does not say.", nil},
		family{"observer_panics_total", counter, "Panics of the observer that were contained.", nil},
	)
	group("stopbank_scrape_", by("source"),
		family{"failures_total", counter, "Scrapes in which a source panicked, was late, or had not returned from the one before.", nil},
	)
	return all
}

// The metrics that observers feed.
const (
	limiterWait          = "stopbank_limiter_wait_seconds"
	limiterExecution     = "stopbank_limiter_execution_seconds"
	compartmentWait      = "stopbank_compartment_wait_seconds"
	compartmentExecution = "stopbank_compartment_execution_seconds"
	leaseDecisions       = "stopbank_lease_decisions_total"

	helpLimiterWait          = "Time that tasks waited for their place, by what became of them."
	helpLimiterExecution     = "Time that tasks held their place."
	helpCompartmentWait      = "Time that calls waited for their place."
	helpCompartmentExecution = "Time that functions ran until their caller was answered."
	helpLeaseDecisions       = "Decisions of the ledger, by operation and result."
)
