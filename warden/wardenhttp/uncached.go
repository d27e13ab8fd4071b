// SPDX-License-Identifier: Apache-2.0

// No cache keeps an answer that is not the handler's (RFC 9111, 5.2.2.5), whatever caches were told of the content that is not sent.

package wardenhttp

import (
	"net/http"
	"slices"
	"strings"

	"github.com/stopbank/stopbank/warden/internal/wire"
)

// ofContent are the headers that describe content, or say how long it may be kept. There are others for each network of caches, whose
// names end in -Cache-Control.
var ofContent = [...]string{ //nolint:gochecknoglobals // constant
	"Cache-Control", "Content-Digest", "Content-Disposition", "Content-Language", "Content-Length",
	"Content-Location", "Content-Range", "Digest", "Edge-Control", "Etag", "Expires", "Last-Modified", "Repr-Digest",
	"Surrogate-Control", "Surrogate-Key", "X-Accel-Expires",
}

// uncached makes h the headers of an answer that no cache keeps; see [forget].
func uncached(h http.Header, r *http.Request) {
	forget(h, r)
	h["Cache-Control"] = []string{"no-store"}
}

// forget clears h of what describes the handler's content, but not of its Content-Encoding: it may be that of an outer handler that
// compresses whatever is written; see [exchange.restoreEncoding]. r, which may be nil, is the request: the answer may depend on what
// it says of its time and its priority.
func forget(h http.Header, r *http.Request) {
	for _, name := range ofContent {
		delete(h, name)
	}
	for name := range h {
		if strings.HasSuffix(name, "-Cache-Control") {
			delete(h, name)
		}
	}
	if r == nil {
		return
	}
	said := wire.Said(func(n wire.Name) []string { return r.Header[n.HTTP] })
	if vary := h["Vary"]; said != "" && !slices.Contains(vary, said) {
		h["Vary"] = append(vary[:len(vary):len(vary)], said)
	}
}
