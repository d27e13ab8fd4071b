// SPDX-License-Identifier: Apache-2.0

// Package wardenprom exports Prometheus metrics of wardens, limiters and compartments, and of the gates, ledgers and
// dispatchers beside them.
//
// There are two collectors, registered like any other:
//
//   - [New] returns one that reads counters and states at each scrape. It costs nothing between scrapes, and nothing per
//     request.
//   - [Events] are the metrics that only an observer can keep: histograms of queue wait and execution times, and the
//     decisions of a ledger. Each event costs one or two observations, and no allocation but for exemplars.
//
// [Register] registers several collectors, or none. With package service, [Exporter] does all of it.
// docs/metrics.md lists every metric, its meaning and its alert; docs/observability.md shows how OpenTelemetry exports them.
//
// # Cardinality
//
// Labels are names from a Config, names of compartments, reasons and outcomes: sets that no client can enlarge. Tenants are
// summed up in their compartment and their keys are never exported. Invalid UTF-8 is replaced, and long values are truncated.
//
// # Errors and blocking
//
// A source that panics, fails, or takes longer than Config.Timeout, is missing from the scrape and counted in
// stopbank_scrape_failures_total; it is not called again until it has returned. All other sources are exported. No request
// waits for a scrape. The errors of this package are *decision.InvalidErrors, and those of a registry.
package wardenprom
