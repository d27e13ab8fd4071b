// Package wardenotel shows to OpenTelemetry what wardens, limiters, compartments, and the gates and ledgers beside them do:
// as metrics, and as events of the spans of what was refused.
//
// # Metrics
//
// [New] makes instruments that are read when a reader collects; between collections they cost nothing, and requests never
// meet them. They are the facts of package wardenprom under OpenTelemetry's names: stopbank_limiter_rejected_total is
// stopbank.limiter.rejected here, in {task}; docs/observability.md has the rule and the list. [NewLimiterTimes] and [NewCompartmentTimes] make
// observers that record waiting and execution times in histograms while requests run.
//
// # Spans
//
// [Refused] adds an event with the explanation to the span of a refused request. No observer can do that, because an
// observer does not know whose request it is told about; whoever asked for the place does.
//
// # Bounds
//
// Attributes of metrics are names that a Config gives, names of compartments, reasons and outcomes: sets that no client can make
// larger. Tenants are summed up in their compartment. A source that panics, or takes longer than Config.Timeout, is missing from the
// collection and counted in stopbank.scrape.failures. Exporters run in goroutines of the SDK: one that blocks or fails holds no
// request up. A meter or a span that panics is contained.
package wardenotel
