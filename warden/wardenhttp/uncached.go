// SPDX-License-Identifier: Apache-2.0

// No cache keeps an answer that is not the handler's (RFC 9111, 5.2.2.5), whatever caches were told of the content that is not sent.

package wardenhttp

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/stopbank/stopbank/warden/internal/wire"
)

// ofContent reports whether a header describes content, says how long it may be kept, or lets a server in front replace it. An outer
// handler that compresses whatever is written has set its Content-Encoding: see [exchange.restoreEncoding].
func ofContent(name string) bool {
	switch name = http.CanonicalHeaderKey(strings.TrimPrefix(name, http.TrailerPrefix)); name {
	case "Accept-Ranges", "Age", "Content-Digest", "Content-Disposition", "Content-Language", "Content-Length", "Content-Location",
		"Content-Md5", "Content-Range", "Content-Type", "Digest", "Etag", "Last-Modified", "Pragma", "Repr-Digest", "Surrogate-Key",
		"Unencoded-Digest", "Use-As-Dictionary", "Cache-Groups", "Xkey":
		return true
	}
	return ofCaches(name) || strings.Contains(name, "Cache-Tag") || slices.ContainsFunc(replaced[:], func(begins string) bool {
		return strings.HasPrefix(name, begins)
	})
}

// replaced is how the headers begin by which servers in front replace an answer: nginx, Apache and lighttpd, LiteSpeed, Perlbal.
var replaced = [...]string{"X-Accel-", "X-Sendfile", "X-Lighttpd-Send-", "X-Litespeed-", "X-Reproxy-"} //nolint:gochecknoglobals // constant

// ofCaches reports whether a header says how long an answer may be kept.
func ofCaches(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return strings.HasSuffix(name, "Cache-Control") || name == "Expires" || name == "Surrogate-Control" || name == "Edge-Control" ||
		name == "X-Accel-Expires"
}

// uncached makes h the headers of an answer that no cache keeps; see [forget].
func uncached(h http.Header, said wire.Said) {
	forget(h, said)
	h["Cache-Control"] = []string{"no-store"}
}

// unkept makes h the headers of an answer of the handler's that no cache keeps.
func unkept(h http.Header, said wire.Said) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return ofCaches(name) })
	h["Cache-Control"] = []string{"no-store"}
	vary(h, said)
}

// forget clears h of what describes the handler's content. The answer may depend on what the request has said.
func forget(h http.Header, said wire.Said) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return ofContent(name) })
	vary(h, said)
}

// vary says in h what the answer depends on.
func vary(h http.Header, said wire.Said) {
	if vary, by := h["Vary"], said.String(); by != "" && !slices.Contains(vary, by) {
		h["Vary"] = append(vary[:len(vary):len(vary)], by)
	}
}
