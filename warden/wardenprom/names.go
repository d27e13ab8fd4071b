// The metrics that observers feed; those of a Collector are in package facts.

package wardenprom

const (
	limiterWait          = "stopbank_limiter_wait_seconds"
	limiterExecution     = "stopbank_limiter_execution_seconds"
	compartmentWait      = "stopbank_compartment_wait_seconds"
	compartmentExecution = "stopbank_compartment_execution_seconds"
	leaseDecisions       = "stopbank_lease_decisions_total"

	helpLimiterWait          = "Queue wait of tasks, by outcome (started, rejected or canceled) and priority class."
	helpLimiterExecution     = "Execution time of tasks."
	helpCompartmentWait      = "Queue wait of calls."
	helpCompartmentExecution = "Execution time of functions, until their caller was answered."
	helpLeaseDecisions       = "Decisions of the ledger, by operation and result."
)
