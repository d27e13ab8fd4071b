// SPDX-License-Identifier: Apache-2.0

// Package requestid is the name of one request: where it is read from, and how it travels in a context to the rejections, log
// lines and traces that carry it.
package requestid

import (
	"context"
	"math/rand/v2"
	"strings"
)

// The headers of an ID and of a trace (W3C Trace Context): canonical for net/http, in lower case for gRPC's metadata.
const (
	HTTP      = "X-Request-Id"
	GRPC      = "x-request-id"
	TraceHTTP = "Traceparent"
	TraceGRPC = "traceparent"
)

// Longest is the maximum length of an ID in bytes.
const Longest = 128

// Valid reports whether s can be an ID: 1 to Longest visible ASCII characters without quotes and backslashes. Such a text has the
// same bytes in a header, in JSON and in a log line, so that a search finds it everywhere, and it cannot end any of them.
func Valid(s string) bool {
	if s == "" || len(s) > Longest {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// Of returns the ID of a request: the first valid one of those given, each the values of one header; else the trace-id of
// traceparent; else a new one. A header that occurs twice is ignored: the values may come from two parties. Of allocates the ID,
// and keeps nothing else alive.
func Of(traceparent []string, given ...[]string) string {
	for _, values := range given {
		if len(values) == 1 && Valid(values[0]) {
			return strings.Clone(values[0])
		}
	}
	if len(traceparent) == 1 {
		if id := traceID(traceparent[0]); id != "" {
			return strings.Clone(id)
		}
	}
	return fresh()
}

// traceID returns that of a traceparent, "" if it is malformed: version-traceid-parentid-flags, of which later versions may have
// more.
func traceID(s string) string {
	const whole = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(s) < whole || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return ""
	}
	version, trace, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	known := version == "00" && len(s) == whole || version != "00" && version != "ff" && (len(s) == whole || s[whole] == '-')
	if !known || !isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(flags) || strings.Trim(trace, "0") == "" ||
		strings.Trim(parent, "0") == "" {
		return ""
	}
	return trace
}

const hexDigits = "0123456789abcdef"

func isHex(s string) bool { return strings.Trim(s, hexDigits) == "" }

// fresh returns 64 random bits, enough to distinguish the requests of some hours. No security depends on them.
func fresh() string {
	var b [16]byte
	for n, i := rand.Uint64(), 0; i < len(b); i++ {
		b[i] = hexDigits[n&15]
		n >>= 4
	}
	return string(b[:])
}

// Key is the key of the ID in a context. Its value is a *string, which costs no allocation.
type Key struct{}

type named struct {
	context.Context
	id string
}

// Value returns the ID for its Key.
func (n *named) Value(key any) any {
	if _, ok := key.(Key); ok {
		return &n.id
	}
	return n.Context.Value(key)
}

// AfterFunc is found by package context: a derived context then uses the caller's own AfterFunc instead of a goroutine.
func (n *named) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(n.Context, f) }

// With returns a context of the request with this ID. It allocates the context.
func With(ctx context.Context, id string) context.Context { return &named{ctx, id} }

// From returns the ID of the request of ctx, "" if there is none. It allocates nothing.
func From(ctx context.Context) string {
	if id, ok := ctx.Value(Key{}).(*string); ok {
		return *id
	}
	return ""
}
