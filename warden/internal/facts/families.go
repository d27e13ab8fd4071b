// Every metric by name: what it is, in which unit, with which labels.

package facts

// Kind says how values of a family are to be read.
type Kind uint8

// The kinds.
const (
	Count  Kind = iota // only grows
	Amount             // goes up and down; those of several processes may be added
	Level              // goes up and down; a sum of several means nothing
)

// Family is one metric.
type Family struct {
	// Name is as Prometheus wants it: words with _ between, the unit and _total at the end.
	Name string
	Kind Kind
	// Unit is by UCUM: "s", "1", or what is counted, as in "{task}".
	Unit   string
	Help   string
	Labels []string
}

// Failures is the family of the sources that failed. Its values come with [Poll].
const Failures = "stopbank_scrape_failures_total"

// Families are all that the sources of this package can say.
func Families() []Family {
	var all []Family
	group := func(prefix string, labels []string, of ...Family) {
		for _, f := range of {
			f.Name = prefix + f.Name
			f.Labels = append(append([]string(nil), labels...), f.Labels...)
			all = append(all, f)
		}
	}
	by := func(labels ...string) []string { return labels }

	group("stopbank_limiter_", by("limiter"),
		Family{"running", Amount, "{task}", "Tasks that hold a place, by class of priority.", by("priority")},
		Family{"queued", Amount, "{task}", "Tasks that wait, by class of priority.", by("priority")},
		Family{"target", Level, "{task}", "Tasks that may run at once, by the decision that rules.", nil},
		Family{"decision_stale", Level, "1", "1 if the decision that ruled has outlived its validity, else 0.", nil},
		Family{"submitted_total", Count, "{task}", "Tasks that asked to run, by class of priority.", by("priority")},
		Family{"executed_total", Count, "{task}", "Tasks that ran and ended, by class of priority.", by("priority")},
		Family{"rejected_total", Count, "{task}", "Tasks that were refused, by reason and class of priority.", by("reason", "priority")},
		Family{"canceled_total", Count, "{task}", "Tasks whose context was canceled before they started, by class of priority.", by("priority")},
		Family{"mode", Level, "1", "1 for the mode in force, 0 for the others: enforce, dry_run or bypass.", by("mode")},
		Family{"would_reject_total", Count, "{task}", "Tasks that were started in a dry run and would have been refused, by reason and class of priority.", by("reason", "priority")},
		Family{"foreign_panics_total", Count, "{panic}", "Panics of the observer, or of a context, that were contained.", nil},
	)
	group("stopbank_warden_", by("warden"),
		Family{"samples_total", Count, "{sample}", "Samples taken, by the ticker or by requests because the ticker was late.", by("taken_by")},
		Family{"largest_sample_gap_seconds", Level, "s", "The longest time between two samples so far.", nil},
		Family{"panics_total", Count, "{panic}", "Panics of sampler, controller and target that were contained.", nil},
		Family{"reentries_total", Count, "{task}", "Tasks refused because their caller held a place already.", nil},
	)
	group("stopbank_control_", by("warden"),
		Family{"decisions_total", Count, "{decision}", "Decisions so far: the number of the last one.", nil},
		Family{"decision_timestamp_seconds", Level, "s", "When control judged last, in seconds since 1970.", nil},
		Family{"decision_valid_seconds", Level, "s", "How long the last decision holds; 0: until the next.", nil},
		Family{"target", Level, "{task}", "Tasks that may run at once, by the last decision.", nil},
		Family{"shed_ratio", Level, "1", "Share of those that would have to wait that is to be refused.", nil},
		Family{"expected_execution_seconds", Level, "s", "Time that a task needs as control judges it; 0: unknown.", nil},
		Family{"reason", Level, "1", "1 for each reason of the last decision.", by("reason")},
	)
	group("stopbank_monitor_", by("warden"),
		Family{"utilization_ratio", Level, "1", "Processor time used of that allowed, in the last sample.", nil},
		Family{"throttled_ratio", Level, "1", "Share of time in which the cgroup was throttled, in the last sample.", nil},
		Family{"runnable_per_processor", Level, "{goroutine}", "Goroutines that wait for a processor, per processor, in the last sample.", nil},
		Family{"lag_seconds", Level, "s", "Scheduling delay of goroutines in the last sample, by percentile.", by("percentile")},
		Family{"service_seconds", Level, "s", "Execution time of the tasks that ended in the last sample, by percentile.", by("percentile")},
		Family{"service_throughput", Level, "{task}/s", "Tasks that ended per second, in the last sample.", nil},
		Family{"service_concurrency", Level, "{task}", "Tasks that ran at once on average, in the last sample.", nil},
	)
	group("stopbank_bulkhead_", by("set"),
		Family{"places", Amount, "{place}", "Places of the set, by its plan.", nil},
		Family{"effective_places", Amount, "{place}", "Places that the decision which rules leaves of them.", nil},
		Family{"in_flight", Amount, "{place}", "Places that are held.", nil},
		Family{"plan_revision", Level, "1", "Number of the plan in force.", nil},
		Family{"decision_stale", Level, "1", "1 if the decision has outlived its validity, else 0.", nil},
		Family{"unknown_total", Count, "{call}", "Calls of compartments that there are not.", nil},
		Family{"observer_panics_total", Count, "{panic}", "Panics of the observer that were contained.", nil},
	)
	group("stopbank_compartment_", by("set", "compartment"),
		Family{"in_flight", Amount, "{place}", "Places that are held.", nil},
		Family{"queued", Amount, "{call}", "Calls that wait.", nil},
		Family{"queue_limit", Amount, "{call}", "Calls that may wait; with tenants, of each tenant.", nil},
		Family{"guaranteed", Amount, "{place}", "Guaranteed places, by the plan.", nil},
		Family{"lendable", Amount, "{place}", "Guaranteed places that others may use while they are idle, by the plan.", nil},
		Family{"limit", Amount, "{place}", "Places that it may have at most, by the plan.", nil},
		Family{"effective_guaranteed", Amount, "{place}", "Guaranteed places that the decision which rules leaves.", nil},
		Family{"effective_limit", Amount, "{place}", "Places that it may have at most under the decision which rules.", nil},
		Family{"lent", Amount, "{place}", "Guaranteed places that others use.", nil},
		Family{"borrowed", Amount, "{place}", "Places that it uses beyond its guarantee.", nil},
		Family{"criticality", Level, "1", "As configured, -128 to 127; 127 is critical.", nil},
		Family{"healthy", Level, "1", "0 if it is critical (127) and refuses more than 5 %, else 1.", nil},
		Family{"rejection_ratio", Level, "1", "Share of the last minute's calls that were refused, for any reason but their caller's cancel.", nil},
		Family{"recent_execution_seconds", Level, "s", "Execution time of the functions that returned in the last minute, by percentile.", by("percentile")},
		Family{"submitted_total", Count, "{call}", "Calls.", nil},
		Family{"admitted_total", Count, "{function}", "Functions that were called.", nil},
		Family{"finished_total", Count, "{function}", "Functions that returned.", nil},
		Family{"answered_total", Count, "{call}", "Callers that were answered, by outcome, before any fallback.", by("outcome")},
		Family{"rejected_total", Count, "{call}", "Calls that were refused on arrival, by reason.", by("reason")},
		Family{"left_total", Count, "{call}", "Calls that waited and left without a place, by reason.", by("reason")},
		Family{"mode", Level, "1", "1 for the mode in force, 0 for the others: enforce, dry_run or bypass.", by("mode")},
		Family{"beyond", Amount, "{call}", "Calls that run without a place, because the compartment does not enforce its bounds, or did not.", nil},
		Family{"would_reject_total", Count, "{call}", "Calls that were started in a dry run and would have been refused, by reason.", by("reason")},
		Family{"abandoned_running", Amount, "{function}", "Functions that run although their caller is gone.", nil},
		Family{"abandoned_total", Count, "{call}", "Callers that were gone before their function returned.", nil},
		Family{"late_panics_total", Count, "{panic}", "Panics of such functions, contained.", nil},
		Family{"degraded_total", Count, "{call}", "Calls that a fallback answered.", nil},
		Family{"fallbacks_in_flight", Amount, "{fallback}", "Fallbacks that run.", nil},
		Family{"fallbacks_failed_total", Count, "{fallback}", "Fallbacks that ended with an error or a panic.", nil},
		Family{"fallbacks_refused_total", Count, "{fallback}", "Fallbacks that were not called because too many ran.", nil},
		Family{"tenants", Amount, "{tenant}", "Tenants that are told apart; missing for a compartment without tenants.", nil},
		Family{"tenants_active", Amount, "{tenant}", "Tenants with calls under way.", nil},
		Family{"tenants_limit", Amount, "{tenant}", "Tenants that can be told apart.", nil},
		Family{"tenants_evicted_total", Count, "{tenant}", "Idle tenants that were forgotten.", nil},
		Family{"tenants_overflowed_total", Count, "{call}", "Calls of tenants that could not be told apart.", nil},
	)
	group("stopbank_admission_", by("gate"),
		Family{"limit", Amount, "{operation}", "Operations that may be in flight.", nil},
		Family{"in_flight", Amount, "{operation}", "Operations in flight.", nil},
		Family{"admitted_total", Count, "{operation}", "Operations that were admitted.", nil},
		Family{"released_total", Count, "{operation}", "Operations that ended.", nil},
		Family{"rejected_total", Count, "{operation}", "Operations that were refused, by reason.", by("reason")},
		Family{"observer_panics_total", Count, "{panic}", "Panics of the observer that were contained.", nil},
	)
	group("stopbank_lease_", by("ledger"),
		Family{"held", Amount, "{domain}", "Domains under lease.", nil},
		Family{"oldest_held_seconds", Level, "s", "Age of the oldest lease; 0: there is none.", nil},
		Family{"ready", Amount, "{domain}", "Domains without a lease in which something waits.", nil},
	)
	group("stopbank_dispatch_", by("dispatcher"),
		Family{"partitions", Level, "{partition}", "Partitions that the group has to share out.", nil},
		Family{"partitions_held", Amount, "{partition}", "Partitions that this process has taken.", nil},
	)
	group("stopbank_dispatch_", by("dispatcher", "partition"),
		Family{"domains", Amount, "{domain}", "Domains with unfinished work, by what they wait for.", by("state")},
		Family{"suspects", Amount, "{domain}", "Domains whose record ran when its process died, and that wait for their trial or are on it.", nil},
		Family{"paced", Amount, "{domain}", "Domains that are ready or pausing because of a rate.", nil},
		Family{"buffered", Amount, "{record}", "Records that were fetched and are not done.", nil},
		Family{"oldest_buffered_seconds", Level, "s", "Age of the oldest of them; 0: there is none.", nil},
		Family{"paused", Level, "1", "1 if fetching waits for room, else 0.", nil},
		Family{"records_total", Count, "{record}", "Records that are done without having been given up, by result.", by("result")},
		Family{"given_up_total", Count, "{record}", "Records given up, by cause.", by("cause")},
		Family{"dead_letters_total", Count, "{record}", "Records given up whose dead letter was accepted.", nil},
		Family{"dead_letter_failures_total", Count, "{failure}", "Times that a dead letter was not accepted.", nil},
		Family{"retries_total", Count, "{retry}", "Failures that led to a retry.", nil},
		Family{"postponed_total", Count, "{answer}", "Times that a handler asked to be called later.", nil},
		Family{"reclaimed_total", Count, "{lease}", "Leases taken from somebody else.", nil},
		Family{"lost_total", Count, "{domain}", "Domains lost to somebody else.", nil},
		Family{"floor_offset", Level, "{offset}", "The lowest offset that may not be done; missing until the partition is taken.", nil},
		Family{"committed_offset", Level, "{offset}", "What the source was told of the floor.", nil},
		Family{"lag_offsets", Level, "{offset}", "Offsets from the floor to the end of the source; missing if it does not say.", nil},
		Family{"observer_panics_total", Count, "{panic}", "Panics of the observer that were contained.", nil},
	)
	group("stopbank_scrape_", by("source"),
		Family{"failures_total", Count, "{failure}", "Scrapes in which a source panicked, was late, or had not returned from the one before.", nil},
	)
	return all
}
