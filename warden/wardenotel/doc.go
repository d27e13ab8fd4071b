// SPDX-License-Identifier: Apache-2.0

// Package wardenotel adds rejections to OpenTelemetry's spans, so that the request that a client reports is found by its
// reason and its ID.
//
// [RecordRejection] adds an event with the reason and the decision in force to the span of a rejected request; [RecordAnswer]
// does so behind wardenhttp. An observer cannot do that, because it does not know the request's context; the code that acquires
// the slot does. Neither blocks. A panic of a span is recovered.
//
// Metrics need no adapter of their own: OpenTelemetry's Prometheus bridge exports those of package wardenprom
// (docs/observability.md#opentelemetry).
package wardenotel
