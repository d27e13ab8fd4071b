// Package wardenotel exports OpenTelemetry metrics of wardens, limiters and compartments, and of the gates, ledgers and
// dispatchers beside them, and adds rejections to spans as events.
//
// # Metrics
//
// [New] registers observable instruments: they cost nothing between collections, and nothing per request. They are the
// metrics of package wardenprom under OpenTelemetry's names: stopbank_limiter_rejected_total is stopbank.limiter.rejected
// here, in {task}; docs/observability.md has the rule and the list. [NewLimiterTimes] and [NewCompartmentTimes] return
// observers that record queue wait and execution times in histograms.
//
// # Spans
//
// [RecordRejection] adds an event with the explanation to the span of a rejected request. An observer cannot do that, because
// it does not know the request's context; the code that acquires the slot does.
//
// # Cardinality
//
// Attributes of metrics are names from a Config, names of compartments, reasons and outcomes: sets that no client can
// enlarge. Tenants are summed up in their compartment. A source that panics, or takes longer than Config.Timeout, is missing
// from the collection and counted in stopbank.scrape.failures. Exporters run on goroutines of the SDK, so one that blocks or
// fails delays no request. A panic of a meter or a span is recovered.
package wardenotel
