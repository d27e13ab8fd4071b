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
		Family{"running", Amount, "{task}", "Tasks that hold a slot, by priority class.", by("priority")},
		Family{"queued", Amount, "{task}", "Tasks in the queue, by priority class.", by("priority")},
		Family{"target", Level, "{task}", "Concurrency limit in force.", nil},
		Family{"decision_stale", Level, "1", "1 while the controller's last decision has expired, else 0.", nil},
		Family{"submitted_total", Count, "{task}", "Tasks that arrived, by priority class.", by("priority")},
		Family{"executed_total", Count, "{task}", "Tasks that ran to their end, by priority class.", by("priority")},
		Family{"rejected_total", Count, "{task}", "Tasks rejected, by reason and priority class.", by("reason", "priority")},
		Family{"canceled_total", Count, "{task}", "Tasks whose context was canceled before they started, by priority class.", by("priority")},
		Family{"mode", Level, "1", "1 for the mode in force, 0 for the others: enforce, dry_run or bypass.", by("mode")},
		Family{"would_reject_total", Count, "{task}", "Tasks started in a dry run that would have been rejected, by reason and priority class.", by("reason", "priority")},
		Family{"observer_panics_total", Count, "{panic}", "Contained panics of the observer or of a task's context.", nil},
	)
	group("stopbank_warden_", by("warden"),
		Family{"samples_total", Count, "{sample}", "Samples taken, by the ticker or by requests because the ticker was late.", by("taken_by")},
		Family{"largest_sample_gap_seconds", Level, "s", "Longest time between two samples so far.", nil},
		Family{"panics_total", Count, "{panic}", "Contained panics of the sampler, controller or target.", nil},
		Family{"reentries_total", Count, "{task}", "Tasks rejected because their caller already held a slot, which is a programming error.", nil},
	)
	group("stopbank_control_", by("warden"),
		Family{"decisions_total", Count, "{decision}", "Decisions so far, which is the number of the last one.", nil},
		Family{"decision_timestamp_seconds", Level, "s", "Time of the last decision, in seconds since 1970.", nil},
		Family{"decision_valid_seconds", Level, "s", "Validity of the last decision; 0: until the next.", nil},
		Family{"target", Level, "{task}", "Concurrency limit of the last decision.", nil},
		Family{"shed_ratio", Level, "1", "Fraction of queueing tasks that the controller sheds.", nil},
		Family{"expected_execution_seconds", Level, "s", "Execution time that the controller expects of a task; 0: unknown.", nil},
		Family{"reason", Level, "1", "1 for each reason of the last decision.", by("reason")},
	)
	group("stopbank_monitor_", by("warden"),
		Family{"utilization_ratio", Level, "1", "CPU time used, as a fraction of the CPU time allowed.", nil},
		Family{"throttled_ratio", Level, "1", "Fraction of time in which the cgroup was throttled.", nil},
		Family{"runnable_per_processor", Level, "{goroutine}", "Goroutines waiting for a processor, per processor.", nil},
		Family{"lag_seconds", Level, "s", "Go scheduler latency, by percentile.", by("percentile")},
		Family{"service_seconds", Level, "s", "Execution time of the tasks that ended, by percentile.", by("percentile")},
		Family{"service_throughput", Level, "{task}/s", "Tasks that ended, per second.", nil},
		Family{"service_concurrency", Level, "{task}", "Tasks running at the same time, on average.", nil},
	)
	group("stopbank_pool_", by("warden", "pool"),
		Family{"in_use", Level, "{connection}", "Connections in use, of a pool that tells.", nil},
		Family{"max", Level, "{connection}", "Connections that there can be.", nil},
		Family{"waiting", Level, "{task}", "Tasks that wait for a connection, of a pool that counts them.", nil},
		Family{"unreadable", Level, "1", "1 if the last reading of the pool could not be used.", by("problem")},
	)
	group("stopbank_bulkhead_", by("set"),
		Family{"slots", Amount, "{slot}", "Slots of the set, by its plan.", nil},
		Family{"effective_slots", Amount, "{slot}", "Slots of the set under the decision in force.", nil},
		Family{"in_flight", Amount, "{slot}", "Calls in flight.", nil},
		Family{"plan_revision", Level, "1", "Revision of the plan in force.", nil},
		Family{"decision_stale", Level, "1", "1 while the decision in force has expired, else 0.", nil},
		Family{"unknown_total", Count, "{call}", "Calls to compartments that do not exist: their name is misspelled.", nil},
		Family{"observer_panics_total", Count, "{panic}", "Contained panics of the observer.", nil},
	)
	group("stopbank_compartment_", by("set", "compartment"),
		Family{"in_flight", Amount, "{slot}", "Calls in flight.", nil},
		Family{"queued", Amount, "{call}", "Calls in the queue.", nil},
		Family{"queue_limit", Amount, "{call}", "Calls that may queue; with tenants, per tenant.", nil},
		Family{"guaranteed", Amount, "{slot}", "Guaranteed slots, by the plan.", nil},
		Family{"lendable", Amount, "{slot}", "Guaranteed slots that others may use while they are idle, by the plan.", nil},
		Family{"limit", Amount, "{slot}", "Most slots that the compartment may use, by the plan.", nil},
		Family{"effective_guaranteed", Amount, "{slot}", "Guaranteed slots under the decision in force.", nil},
		Family{"effective_limit", Amount, "{slot}", "Most slots that the compartment may use under the decision in force.", nil},
		Family{"proposed_guaranteed", Amount, "{slot}", "Guaranteed slots by the plan that the set proposes, or by the one in force if it proposes none.", nil},
		Family{"proposed_limit", Amount, "{slot}", "Most slots that the compartment may use, by the same plan.", nil},
		Family{"lent", Amount, "{slot}", "Guaranteed slots in use by other compartments.", nil},
		Family{"borrowed", Amount, "{slot}", "Slots in use beyond the guarantee.", nil},
		Family{"criticality", Level, "1", "Configured criticality, -128 to 127; 127 is critical.", nil},
		Family{"healthy", Level, "1", "0 if the compartment is critical (127) and rejects more than 5 %, else 1.", nil},
		Family{"rejection_ratio", Level, "1", "Fraction of the last minute's calls that were rejected; canceled calls do not count.", nil},
		Family{"recent_execution_seconds", Level, "s", "Execution time of functions that returned in the last minute, by percentile.", by("percentile")},
		Family{"submitted_total", Count, "{call}", "Calls that arrived.", nil},
		Family{"admitted_total", Count, "{function}", "Functions started.", nil},
		Family{"finished_total", Count, "{function}", "Functions that returned.", nil},
		Family{"answered_total", Count, "{call}", "Calls by their outcome, before any fallback: succeeded, failed, timeout_running, canceled or panicked.", by("outcome")},
		Family{"rejected_total", Count, "{call}", "Calls rejected on arrival, by reason.", by("reason")},
		Family{"left_total", Count, "{call}", "Calls that left the queue without a slot, by reason.", by("reason")},
		Family{"mode", Level, "1", "1 for the mode in force, 0 for the others: enforce, dry_run or bypass.", by("mode")},
		Family{"without_slot", Amount, "{call}", "Calls running without a slot, started in a dry run or in the bypass.", nil},
		Family{"would_reject_total", Count, "{call}", "Calls started in a dry run that would have been rejected, by reason.", by("reason")},
		Family{"abandoned_running", Amount, "{function}", "Functions still running after their caller gave up.", nil},
		Family{"abandoned_total", Count, "{call}", "Functions whose caller gave up before they returned.", nil},
		Family{"late_panics_total", Count, "{panic}", "Contained panics of functions whose caller had given up.", nil},
		Family{"degraded_total", Count, "{call}", "Calls answered by a fallback.", nil},
		Family{"fallbacks_in_flight", Amount, "{fallback}", "Fallbacks running.", nil},
		Family{"fallbacks_failed_total", Count, "{fallback}", "Fallbacks that ended with an error or a panic.", nil},
		Family{"fallbacks_rejected_total", Count, "{fallback}", "Fallbacks not started because too many were running.", nil},
		Family{"tenants", Amount, "{tenant}", "Tenants known; missing for a compartment without tenants.", nil},
		Family{"tenants_active", Amount, "{tenant}", "Tenants with calls in progress.", nil},
		Family{"tenants_limit", Amount, "{tenant}", "Most tenants that can be known at a time.", nil},
		Family{"tenants_evicted_total", Count, "{tenant}", "Idle tenants forgotten.", nil},
		Family{"tenants_overflowed_total", Count, "{call}", "Calls that shared one tenant's limits because too many tenants were known.", nil},
	)
	group("stopbank_admission_", by("gate"),
		Family{"limit", Amount, "{operation}", "Operations that may be in flight.", nil},
		Family{"in_flight", Amount, "{operation}", "Operations in flight.", nil},
		Family{"admitted_total", Count, "{operation}", "Operations admitted.", nil},
		Family{"released_total", Count, "{operation}", "Operations that ended.", nil},
		Family{"rejected_total", Count, "{operation}", "Operations rejected, by reason.", by("reason")},
	)
	group("stopbank_lease_", by("ledger"),
		Family{"held", Amount, "{domain}", "Keys under lease.", nil},
		Family{"oldest_held_seconds", Level, "s", "Age of the oldest lease; 0: there is none.", nil},
		Family{"ready", Amount, "{domain}", "Keys with waiting work and no lease.", nil},
	)
	group("stopbank_dispatch_", by("dispatcher"),
		Family{"partitions", Level, "{partition}", "Partitions of the consumer group, owned or not.", nil},
		Family{"partitions_held", Amount, "{partition}", "Partitions that this process works on.", nil},
	)
	group("stopbank_dispatch_", by("dispatcher", "partition"),
		Family{"domains", Amount, "{domain}", "Keys with unfinished work, by state: working, ready for a slot, pausing before a retry, waiting to be read, or fenced.", by("state")},
		Family{"suspects", Amount, "{domain}", "Keys whose record was running when its process died, and that have not passed their trial.", nil},
		Family{"paced", Amount, "{domain}", "Keys that a rate limit delays.", nil},
		Family{"buffered", Amount, "{record}", "Records fetched and not finished.", nil},
		Family{"oldest_buffered_seconds", Level, "s", "Age of the oldest record fetched and not finished; 0: there is none.", nil},
		Family{"paused", Level, "1", "1 while fetching waits for room in the buffer, else 0.", nil},
		Family{"stalled", Level, "1", "1 while the partition cannot be taken, or records wait, and nothing has ended for AttemptTimeout, by reason: unopened, taking, working, fenced, pausing, slots or reading; else missing.", by("reason")},
		Family{"records_total", Count, "{record}", "Records finished without being given up, by result: succeeded or skipped.", by("result")},
		Family{"given_up_total", Count, "{record}", "Records given up, by cause: retries (used up), permanent (ErrPermanent) or died (with their process).", by("cause")},
		Family{"dead_letters_total", Count, "{record}", "Dead letters accepted by their receiver.", nil},
		Family{"dead_letter_failures_total", Count, "{failure}", "Failed attempts to hand a dead letter to its receiver.", nil},
		Family{"retries_total", Count, "{retry}", "Failures that led to a retry.", nil},
		Family{"postponed_total", Count, "{answer}", "Times that a handler postponed its record.", nil},
		Family{"reclaimed_total", Count, "{lease}", "Leases taken over from another worker.", nil},
		Family{"lost_total", Count, "{domain}", "Keys lost to another worker.", nil},
		Family{"floor_offset", Level, "{offset}", "Low watermark: every offset below it is done; missing until the partition is taken.", nil},
		Family{"committed_offset", Level, "{offset}", "Offset last committed to the source.", nil},
		Family{"lag_offsets", Level, "{offset}", "Offsets between the low watermark and the end of the source; missing if the source does not report its end.", nil},
		Family{"observer_panics_total", Count, "{panic}", "Contained panics of the observer.", nil},
	)
	group("stopbank_scrape_", by("source"),
		Family{"failures_total", Count, "{failure}", "Scrapes in which a source panicked, failed or did not answer in time.", nil},
	)
	return all
}
