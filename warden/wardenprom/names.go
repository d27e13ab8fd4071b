// The metrics that observers feed; those of a Collector are in package facts.

package wardenprom

const (
	limiterWait          = "stopbank_limiter_wait_seconds"
	limiterExecution     = "stopbank_limiter_execution_seconds"
	compartmentWait      = "stopbank_compartment_wait_seconds"
	compartmentExecution = "stopbank_compartment_execution_seconds"
	leaseDecisions       = "stopbank_lease_decisions_total"

	helpLimiterWait          = "Time that tasks waited for their place, by what became of them and class of priority."
	helpLimiterExecution     = "Time that tasks held their place."
	helpCompartmentWait      = "Time that calls waited for their place."
	helpCompartmentExecution = "Time that functions ran until their caller was answered."
	helpLeaseDecisions       = "Decisions of the ledger, by operation and result."
)
