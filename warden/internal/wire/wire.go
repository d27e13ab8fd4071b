// SPDX-License-Identifier: Apache-2.0

// Package wire reads and names the headers that tell a server a request's remaining time and its priority: HTTP headers, and the
// same words as gRPC metadata.
package wire

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Name is the name of a header: canonical for net/http, in lower case for gRPC's metadata.
type Name struct{ HTTP, GRPC string }

// The headers that this project's clients send.
const (
	PriorityHTTP = "Warden-Priority" // -128 to 127, or background, normal, high, critical
	PriorityGRPC = "warden-priority"
	TimeoutHTTP  = "Warden-Timeout" // milliseconds, rounded down

	// UntrustedHTTP says, with any value and from anybody, that the timeout is one that a client chose whom nobody trusts.
	UntrustedHTTP = "Warden-Timeout-Untrusted"
	UntrustedGRPC = "warden-timeout-untrusted"
)

// Longest is the longest timeout that counts: a longer one is the same as none.
const Longest = 24 * time.Hour

// Headers are what the headers of a request tell a server.
type Headers struct {
	Timeout     time.Duration // after which nobody waits for the answer; 0: none
	Untrusted   bool          // whoever sends the request does not vouch for it
	Priority    decision.Priority
	HasPriority bool
	Said        Said
}

// Any reports whether there is a timeout or a priority.
func (h Headers) Any() bool { return h.HasPriority || h.Timeout > 0 }

// dialects are the headers with a timeout.
var dialects = [...]struct { //nolint:gochecknoglobals // constant
	name Name
	read func(string) (time.Duration, bool)
}{
	{Name{TimeoutHTTP, "warden-timeout"}, milliseconds},
	{Name{"Grpc-Timeout", "grpc-timeout"}, grpcTimeout},
	{Name{"Connect-Timeout-Ms", "connect-timeout-ms"}, milliseconds},
	{Name{"X-Envoy-Expected-Rq-Timeout-Ms", "x-envoy-expected-rq-timeout-ms"}, milliseconds},
	{Name{"X-Request-Timeout", "x-request-timeout"}, seconds},
	{Name{"X-Request-Timeout-Ms", "x-request-timeout-ms"}, milliseconds},
}

var urgencyName = Name{"Priority", "priority"} //nolint:gochecknoglobals // constant

// Said is which of the headers that Read reads a request has.
type Said [len(dialects) + 3]bool

// name returns the name of the header i of those.
func (Said) name(i int) Name {
	switch i - len(dialects) {
	case 0:
		return Name{PriorityHTTP, PriorityGRPC}
	case 1:
		return urgencyName
	case 2:
		return Name{UntrustedHTTP, UntrustedGRPC}
	}
	return dialects[i].name
}

// String returns the names of these headers as a value of Vary; "": there are none. It allocates if there are two or more.
func (s Said) String() (names string) {
	for i, is := range s {
		switch name := s.name(i).HTTP; {
		case !is:
		case names == "":
			names = name
		default:
			names += ", " + name
		}
	}
	return names
}

// Read reads the headers of a request, in all dialects; values returns those of one header. Of several the shortest timeout and
// the lowest priority count. A header that occurs twice or is malformed is ignored: two values may come from two parties, and a
// repair would be a guess.
func Read(values func(Name) []string) Headers {
	var s Headers
	get := func(i int) []string {
		of := values(s.Said.name(i))
		s.Said[i] = len(of) > 0
		return of
	}
	for i, dialect := range dialects {
		left, ok := once(get(i), dialect.read)
		if ok && left > 0 && left <= Longest && (s.Timeout == 0 || left < s.Timeout) {
			s.Timeout = left
		}
	}
	s.Untrusted = s.Timeout > 0 && len(get(len(dialects)+2)) > 0
	s.Priority, s.HasPriority = once(get(len(dialects)), priority)
	if p, ok := once(get(len(dialects)+1), urgency); ok && (!s.HasPriority || p < s.Priority) {
		s.Priority, s.HasPriority = p, true
	}
	return s
}

// Undated returns the headers of a request for its handler without the timeouts that RPC libraries turn into deadlines of contexts: all,
// or those that Read ignores, since the libraries may read them otherwise: the first of two, or one of more digits. It is a copy, or
// the headers themselves if nothing changes.
func Undated(headers map[string][]string, all bool) map[string][]string {
	rest := headers
	for _, of := range dialects[1:3] { // Grpc-Timeout and Connect-Timeout-Ms
		values := headers[of.name.HTTP]
		if left, ok := once(values, of.read); len(values) > 0 && (all || !ok || left <= 0) {
			rest = maps.Clone(rest)
			delete(rest, of.name.HTTP)
		}
	}
	return rest
}

// Ranked returns the headers of a request for its handler with the priority that counts, if they have one: who is asked with them may
// trust whoever sends them on. It is a copy, or the headers themselves if nothing changes.
func Ranked(headers map[string][]string, p decision.Priority) map[string][]string {
	if _, ranked := headers[PriorityHTTP]; !ranked {
		return headers
	}
	headers = maps.Clone(headers)
	if headers[PriorityHTTP] = []string{p.String()}; p == decision.Normal {
		delete(headers, PriorityHTTP)
	}
	return headers
}

// Keep removes our headers from those that end with this connection, which a client names: it is not to keep from an upstream what a
// server in front says of the request.
func Keep(headers map[string][]string) {
	for i, line := range headers["Connection"] {
		var kept []string
		for name := range strings.SplitSeq(line, ",") {
			name = strings.TrimSpace(name)
			if !slices.ContainsFunc([]string{PriorityHTTP, TimeoutHTTP, UntrustedHTTP}, func(ours string) bool { return strings.EqualFold(name, ours) }) {
				kept = append(kept, name)
			}
		}
		headers["Connection"][i] = strings.Join(kept, ", ")
	}
}

// once parses the value of a header that occurs exactly once.
func once[T any](values []string, read func(string) (T, bool)) (v T, ok bool) {
	if len(values) == 1 {
		v, ok = read(values[0])
	}
	if !ok {
		return *new(T), false
	}
	return v, true
}

// digits parses a number of 1 to 8 digits.
func digits(s string) (n int64, ok bool) {
	if s == "" || len(s) > 8 {
		return 0, false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

func milliseconds(s string) (time.Duration, bool) {
	n, ok := digits(s)
	return time.Duration(n) * time.Millisecond, ok
}

// grpcTimeout parses a Timeout of gRPC's protocol: digits and the letter of a unit.
func grpcTimeout(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	unit := time.Duration(0)
	switch s[len(s)-1] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	}
	n, ok := digits(s[:len(s)-1])
	if !ok || unit == 0 || n > int64(Longest/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// seconds parses a number of seconds, perhaps with a fraction, perhaps with a unit: 30, 2.5, 30s, 500ms. A client that means
// milliseconds by a bare number gets a thousand times as much, which is harmless; the other way it would not be.
func seconds(s string) (time.Duration, bool) {
	if ms, ok := strings.CutSuffix(s, "ms"); ok {
		return milliseconds(ms)
	}
	whole, fraction, parts := strings.Cut(strings.TrimSuffix(s, "s"), ".")
	n, ok := digits(whole)
	if !ok || n > int64(Longest/time.Second) {
		return 0, false
	}
	d := time.Duration(n) * time.Second
	if !parts {
		return d, true
	}
	part, ok := digits(fraction)
	for range 8 - len(fraction) {
		part *= 10
	}
	return d + time.Duration(part)*10*time.Nanosecond, ok
}

// priority parses a priority: a name or a number.
func priority(s string) (decision.Priority, bool) {
	switch s {
	case "background":
		return decision.Background, true
	case "normal":
		return decision.Normal, true
	case "high":
		return decision.High, true
	case "critical":
		return decision.Critical, true
	}
	number, negative := strings.CutPrefix(s, "-")
	n, ok := digits(number) // strconv's error would copy it
	if negative {
		n = -n
	}
	return decision.Priority(n), ok && len(s) <= len("-128") && -128 <= n && n <= 127
}

// urgency parses a Priority of RFC 9218: u, 0 to 7, and perhaps i. Only 7, "background tasks such as delivery of software
// updates", counts. All others order the parts of one page for its browser, u=0 for every document and u=5 for every picture, and
// say nothing about one request beside another client's.
func urgency(s string) (decision.Priority, bool) {
	u := byte(0)
	for member := range strings.SplitSeq(s, ",") {
		switch member = strings.Trim(member, " \t"); {
		case member == "i", member == "i=?0", member == "i=?1":
		case u == 0 && len(member) == len("u=7") && member[:2] == "u=" && member[2] >= '0' && member[2] <= '7':
			u = member[2]
		default:
			return 0, false
		}
	}
	return decision.Background, u == '7'
}
