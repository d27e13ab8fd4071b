// Package requestid is the name of one request: where it is read from, and how it travels in a context to the rejections, log
// lines and traces that carry it.
package requestid

import (
	"context"
	"math/rand/v2"
	"strings"
)

// The header that has it: by net/http in its canonical form, in gRPC's metadata in lower case. Traces have theirs (W3C Trace
// Context).
const (
	HTTP      = "X-Request-Id"
	GRPC      = "x-request-id"
	TraceHTTP = "Traceparent"
	TraceGRPC = "traceparent"
)

// Longest is how many bytes an id has at most.
const Longest = 128

// Valid is whether s can be an id: 1 to Longest visible ASCII characters, but neither a quote nor a backslash. Such a text is the
// same bytes in a header, in JSON and in a line of a log, so that a search for it finds it everywhere; and it ends none of them.
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

// Of is the id of a request: the first valid one of those given, each the values of one header; else the trace-id of traceparent;
// else a new one. A header that is there twice says nothing: the two may be two people's. It allocates the id, and keeps nothing
// else alive.
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

// traceID is that of a traceparent, "" if it is none: version-traceid-parentid-flags, of which later versions may have more.
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

// fresh is 64 random bits. Nobody's safety depends on them: they tell the requests of some hours apart.
func fresh() string {
	var b [16]byte
	for n, i := rand.Uint64(), 0; i < len(b); i++ {
		b[i] = hexDigits[n&15]
		n >>= 4
	}
	return string(b[:])
}

// Key is what a context is asked for. The answer is a *string, so that it costs no allocation.
type Key struct{}

type named struct {
	context.Context
	id string
}

// Value finds the id.
func (n *named) Value(key any) any {
	if _, ok := key.(Key); ok {
		return &n.id
	}
	return n.Context.Value(key)
}

// AfterFunc is what package context looks for: a context of somebody else's make is watched in its own way, and not by a
// goroutine.
func (n *named) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(n.Context, f) }

// With returns a context of the request that has this id. It allocates the context.
func With(ctx context.Context, id string) context.Context { return &named{ctx, id} }

// From is the id of the request that ctx is of, "" if it is of none. It allocates nothing.
func From(ctx context.Context) string {
	if id, ok := ctx.Value(Key{}).(*string); ok {
		return *id
	}
	return ""
}
