// Package wardenprom exports Prometheus metrics of wardens, limiters and compartments, and of the gates, ledgers and
// dispatchers beside them.
//
// There are two kinds of collectors, registered like any other:
//
//   - A [Collector], made by [New], reads counters and states at each scrape. It costs nothing between scrapes, and nothing
//     per request.
//   - A histogram is an observer that is also a collector: [NewLimiterTimes] and [NewCompartmentTimes]. Each event costs one
//     or two observations and no allocation.
//
// [Register] registers several collectors, or none. docs/observability.md lists every metric, its meaning and its alert.
//
// # Other modules
//
// Gates, ledgers and dispatchers are described by functions ([Gate], [Ledger], [Dispatcher]), so that this package imports
// neither admission nor lease.
//
// # Cardinality
//
// Labels are names from a Config, names of compartments, reasons and outcomes: sets that no client can enlarge. Tenants are
// summed up in their compartment and their keys are never exported. Invalid UTF-8 is replaced, and long values are truncated.
//
// A source that panics, or takes longer than Config.Timeout, is missing from the scrape and counted in
// stopbank_scrape_failures_total; it is not called again until it has returned. All other sources are exported.
package wardenprom
