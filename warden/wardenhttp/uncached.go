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
	switch name = http.CanonicalHeaderKey(name); name {
	case "Accept-Ranges", "Age", "Content-Digest", "Content-Disposition", "Content-Language", "Content-Length", "Content-Location",
		"Content-Md5", "Content-Range", "Content-Type", "Digest", "Edge-Control", "Etag", "Expires", "Last-Modified", "Pragma",
		"Repr-Digest", "Surrogate-Control", "Surrogate-Key", "X-Lighttpd-Send-File", "X-Sendfile", "Xkey":
		return true
	}
	return strings.HasSuffix(name, "Cache-Control") || strings.HasSuffix(name, "Cache-Tag") || strings.HasPrefix(name, "X-Accel-")
}

// uncached makes h the headers of an answer that no cache keeps; see [forget].
func uncached(h http.Header, r *http.Request) {
	forget(h, r)
	h["Cache-Control"] = []string{"no-store"}
}

// forget clears h of what describes the handler's content. r, which may be nil, is the request: the answer may depend on what it says
// of its time and its priority.
func forget(h http.Header, r *http.Request) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return ofContent(name) })
	if r == nil {
		return
	}
	said := wire.Said(func(n wire.Name) []string { return r.Header[n.HTTP] })
	if vary := h["Vary"]; said != "" && !slices.Contains(vary, said) {
		h["Vary"] = append(vary[:len(vary):len(vary)], said)
	}
}
