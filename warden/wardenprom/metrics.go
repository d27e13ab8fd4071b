// SPDX-License-Identifier: Apache-2.0

// Every metric of a Collector: its name, its meaning, its labels.

package wardenprom

// metric is one family. A name that ends in _total is a counter, any other a gauge.
type metric struct {
	name, help string
	labels     []string
}

// scrapeFailures counts the failures of each source.
const scrapeFailures = "stopbank_scrape_failures_total"

// metrics are all that the sources can export.
func metrics() []metric {
	var all []metric
	group := func(prefix string, labels []string, of ...metric) {
		for _, m := range of {
			m.name = prefix + m.name
			m.labels = append(append([]string(nil), labels...), m.labels...)
			all = append(all, m)
		}
	}
	by := func(labels ...string) []string { return labels }

	group("stopbank_limiter_", by("limiter"),
		metric{"running", "Tasks that hold a slot, by priority class.", by("priority")},
		metric{"parked", "Tasks that run without a slot, streams that only wait, by priority class.", by("priority")},
		metric{"queued", "Tasks in the queue, by priority class.", by("priority")},
		metric{"oldest_running_seconds", "How long the oldest running task has held its slot, at least; 0: none was seen to run.", nil},
		metric{"target", "Concurrency limit of the decision in force.", nil},
		metric{"decision_stale", "1 while the controller's last decision has expired, else 0.", nil},
		metric{"submitted_total", "Tasks that arrived, by priority class.", by("priority")},
		metric{"executed_total", "Tasks that ran to their end, by priority class.", by("priority")},
		metric{
			"abandoned_total",
			"Of the tasks executed, those that their deadline or client ended before they had an answer, by priority class.",
			by("priority"),
		},
		metric{
			"failed_total",
			"Of the tasks executed, those that ended with an error of the service (status 500 or more, but 501 and 505) or a panic, by priority class.",
			by("priority"),
		},
		metric{"rejected_total", "Tasks rejected, by reason and priority class.", by("priority", "reason")},
		metric{"canceled_total", "Tasks whose context was canceled before they started, by priority class.", by("priority")},
		metric{"mode", "1 for the mode in force, 0 for the others: enforce, dry_run or bypass.", by("mode")},
		metric{
			"would_reject_total",
			"Tasks started in a dry run that would have been rejected, by reason and priority class.",
			by("priority", "reason"),
		},
		metric{"observer_panics_total", "Contained panics of the observer or of a task's context.", nil},
	)
	group("stopbank_warden_", by("warden"),
		metric{"samples_total", "Samples taken, by the ticker of Run, or by requests where that is late or Run is not active.", by("taken_by")},
		metric{
			"late_samples_total",
			"Samples more than half a second late while Run was active: the process stood still, got no processor, or its sampler hung.",
			nil,
		},
		metric{"panics_total", "Contained panics of the sampler, controller or target.", nil},
		metric{"reentries_total", "Tasks rejected because their caller already held a slot, which is a programming error.", nil},
	)
	group("stopbank_control_", by("warden"),
		metric{"decisions_total", "Decisions so far, which is the number of the last one.", nil},
		metric{"decision_timestamp_seconds", "Time of the last decision, in seconds since 1970.", nil},
		metric{"decision_valid_seconds", "Validity of the last decision; 0: until the next.", nil},
		metric{"target", "Concurrency limit of the last decision.", nil},
		metric{"shed_ratio", "Fraction of queueing tasks that the controller sheds.", nil},
		metric{"expected_execution_seconds", "Execution time that the controller expects of a task; 0: unknown.", nil},
		metric{"reason", "1 for each reason of the last decision.", by("reason")},
	)
	group("stopbank_monitor_", by("warden"),
		metric{"utilization_ratio", "CPU time used, as a fraction of the CPU time allowed.", nil},
		metric{"throttled_ratio", "Fraction of time in which the cgroup was throttled.", nil},
		metric{"processor_share_ratio", "CPU time got, of what the process wanted: below 1, other processes take processors.", nil},
		metric{"memory_limit_bytes", "Memory that the process may use, by GOMEMLIMIT or its cgroup; missing: no limit is known.", nil},
		metric{"memory_live_bytes", "Heap in use, as the last garbage collection found it.", nil},
		metric{"runnable_per_processor", "Goroutines waiting for a processor, per processor.", nil},
		metric{"lag_seconds", "Go scheduler latency, 90th percentile.", nil},
	)
	group("stopbank_pool_", by("warden", "pool"),
		metric{"in_use", "Connections in use; missing if the pool does not report its size.", nil},
		metric{"max", "Largest number of connections.", nil},
		metric{"waiting", "Tasks that wait for a connection; missing if the pool does not count them.", nil},
		metric{"unreadable", "1 if the last reading of the pool could not be used, else missing.", by("problem")},
	)
	group("stopbank_bulkhead_", by("set"),
		metric{"slots", "Slots of the set, by its plan.", nil},
		metric{"effective_slots", "Slots of the set under the decision in force.", nil},
		metric{"in_flight", "Calls in flight.", nil},
		metric{"plan_revision", "Revision of the plan in force.", nil},
		metric{"decision_stale", "1 while the decision in force has expired, else 0.", nil},
		metric{"unknown_total", "Calls to compartments that do not exist.", nil},
		metric{"observer_panics_total", "Contained panics of the observer.", nil},
	)
	group("stopbank_compartment_", by("set", "compartment"),
		metric{"in_flight", "Calls in flight.", nil},
		metric{"oldest_running_seconds", "How long the oldest function has run, at least; 0: none was seen to run.", nil},
		metric{"queued", "Calls in the queue.", nil},
		metric{"queue_limit", "Calls that may queue; with tenants, per tenant.", nil},
		metric{"guaranteed", "Guaranteed slots, by the plan.", nil},
		metric{"lendable", "Guaranteed slots that others may use while they are idle, by the plan.", nil},
		metric{"limit", "Most slots that the compartment may use, by the plan.", nil},
		metric{"effective_guaranteed", "Guaranteed slots under the decision in force.", nil},
		metric{"effective_limit", "Most slots that the compartment may use under the decision in force.", nil},
		metric{
			"proposed_guaranteed",
			"Guaranteed slots by the plan that the set proposes, or by the one in force if it proposes none.",
			nil,
		},
		metric{"proposed_limit", "Most slots that the compartment may use, by the same plan.", nil},
		metric{"lent", "Guaranteed slots in use by other compartments.", nil},
		metric{"borrowed", "Slots in use beyond the guarantee.", nil},
		metric{"criticality", "Configured criticality, -128 to 127; 127 is critical.", nil},
		metric{"healthy", "0 if the compartment is critical (127) and rejects more than 5 %, else 1.", nil},
		metric{"rejection_ratio", "Fraction rejected of the calls that were rejected or returned in the last minute; cancellations and reentries are no rejections.", nil},
		metric{"submitted_total", "Calls that arrived.", nil},
		metric{"admitted_total", "Functions started.", nil},
		metric{"finished_total", "Functions that returned.", nil},
		metric{
			"answered_total",
			"Calls whose function was called, by outcome, before any fallback: succeeded, failed, timeout_running, canceled or panicked.",
			by("outcome"),
		},
		metric{"rejected_total", "Calls rejected on arrival or by their breaker, by reason.", by("reason")},
		metric{"left_total", "Calls that left the queue without a start, or came too late to start, by reason.", by("reason")},
		metric{"mode", "1 for the mode in force, 0 for the others: enforce, dry_run or bypass.", by("mode")},
		metric{"without_slot", "Calls running without a slot, started in a dry run or in the bypass.", nil},
		metric{"would_reject_total", "Calls started in a dry run that would have been rejected, by reason; missing before the first dry run.", by("reason")},
		metric{"abandoned_running", "Functions still running after their caller gave up.", nil},
		metric{"abandoned_total", "Functions whose caller gave up before they returned.", nil},
		metric{"late_panics_total", "Contained panics of functions whose caller had given up.", nil},
		metric{"degraded_total", "Calls answered by a fallback.", nil},
		metric{"fallbacks_in_flight", "Fallbacks running.", nil},
		metric{"fallbacks_failed_total", "Fallbacks that ended with an error or a panic.", nil},
		metric{"fallbacks_rejected_total", "Fallbacks not started because too many were running.", nil},
		metric{"tenants", "Tenants known; missing for a compartment without tenants.", nil},
		metric{"tenants_active", "Tenants with calls in progress.", nil},
		metric{"tenants_limit", "Most tenants that can be known at a time.", nil},
		metric{"tenants_evicted_total", "Idle tenants forgotten.", nil},
		metric{"tenants_overflowed_total", "Lookups of tenants that returned a shared one: too many tenants had calls in progress, or the key was too long.", nil},
	)
	group("stopbank_admission_", by("gate"),
		metric{"limit", "Operations that may be in flight.", nil},
		metric{"in_flight", "Operations in flight.", nil},
		metric{"admitted_total", "Operations admitted.", nil},
		metric{"released_total", "Operations that ended.", nil},
		metric{"rejected_total", "Operations rejected, by reason.", by("reason")},
	)
	group("stopbank_lease_", by("ledger"),
		metric{"held", "Keys under a lease that is not released.", nil},
		metric{"oldest_held_seconds", "Time since the first attempt of the oldest of these leases; 0: there is none.", nil},
		metric{"ready", "Keys with waiting work and no lease.", nil},
	)
	group("stopbank_dispatch_", by("dispatcher"),
		metric{"partitions", "Partitions of the consumer group, owned or not.", nil},
		metric{"partitions_held", "Partitions that this process works on.", nil},
	)
	group("stopbank_dispatch_", by("dispatcher", "partition"),
		metric{
			"domains",
			"Keys with unfinished work, by state: working, ready for a slot, pausing before a retry, waiting to be read, or " +
				"fenced.",
			by("state"),
		},
		metric{"suspects", "Keys taken over from an owner that did not release them, as one that dies, and not yet past their trial.", nil},
		metric{"paced", "Keys that a rate limit delays.", nil},
		metric{"buffered", "Records fetched and not finished.", nil},
		metric{"oldest_buffered_seconds", "Time since the oldest unfinished record was fetched; 0: there is none.", nil},
		metric{"paused", "1 while fetching waits for room in the buffer, else 0.", nil},
		metric{
			"stalled",
			"1 while the partition cannot be taken, or records wait, and nothing has ended for AttemptTimeout, by reason: " +
				"unopened, taking, working, fenced, pausing, slots, reading or unknown; or rewound, at once; else missing.",
			by("reason"),
		},
		metric{"records_total", "Records finished without being given up, by result: succeeded or skipped.", by("result")},
		metric{
			"given_up_total",
			"Records given up, by cause: retries (used up), permanent (ErrPermanent) or died (their process, at the last attempt).",
			by("cause"),
		},
		metric{"dead_letters_total", "Dead letters accepted by their receiver.", nil},
		metric{"dead_letter_failures_total", "Failed attempts to hand a dead letter to its receiver.", nil},
		metric{"retries_total", "Failures that led to a retry.", nil},
		metric{"postponed_total", "Times that a handler postponed its record.", nil},
		metric{"reclaimed_total", "Leases taken over from another worker.", nil},
		metric{"lost_total", "Keys lost to another worker.", nil},
		metric{"floor_offset", "Low watermark: every offset below it is done; missing until the partition is taken.", nil},
		metric{"committed_offset", "Offset last committed to the source.", nil},
		metric{
			"lag_offsets",
			"Offsets between the low watermark and the end of the source; missing if the source does not report its end.",
			nil,
		},
		metric{"observer_panics_total", "Contained panics of the observer.", nil},
	)
	group("stopbank_scrape_", by("source"),
		metric{"failures_total", "Scrapes in which a source panicked, failed or did not answer in time.", nil},
	)
	return all
}
