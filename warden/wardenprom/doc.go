// Package wardenprom shows to Prometheus what wardens, limiters, compartments, and the gates and ledgers beside them do.
//
// There are two kinds of collectors, to be registered like any other:
//
//   - A [Collector], made by [New], reads counters and states when it is scraped. Between scrapes it costs nothing, and
//     requests never meet it.
//   - A histogram is fed while requests run: [NewLimiterTimes] and [NewCompartmentTimes] make observers that are collectors as
//     well. Each event costs one or two observations and no allocation.
//
// [Register] registers several of them, or none. docs/observability.md has every metric, what it tells, and the alert on it.
//
// # What is not warden's
//
// Gates, ledgers and dispatchers are described by functions ([Gate], [Ledger], [Dispatcher]), so that this package imports neither
// admission nor lease.
//
// # Bounds
//
// Labels are names that a Config gives, names of compartments, reasons and outcomes: sets that no client can make larger. Tenants
// are summed up in their compartment and their keys are never shown. Whatever is not valid UTF-8 is made so, and whatever is long is
// cut.
//
// A source that panics, or takes longer than Config.Timeout, is missing from the scrape and counted in
// stopbank_scrape_failures_total; as long as it has not returned it is not asked again. Everything else is shown.
package wardenprom
