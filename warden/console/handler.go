// SPDX-License-Identifier: Apache-2.0

// Serving: a few fixed paths, read-only, under a policy that lets the page load nothing from elsewhere.

package console

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed assets
var assets embed.FS

// policy lets the page load its own script and style and query this server, and nothing else. Trusted Types make turning text
// into markup an error, in browsers that support them.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP answers GET and HEAD for the page, its files, state.json, rejections.json, dead-letters.json and events; other
// requests get application/problem+json with a code.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	// Where deadlines are not supported, a reader that does not read holds its goroutine until it goes.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(c.writeTimeout))
	if code, detail := c.forbidden(r); code != "" {
		writeProblem(w, http.StatusForbidden, code, detail)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		writeProblem(w, http.StatusMethodNotAllowed, "read_only", "The console is read-only: GET and HEAD.")
		return
	}
	switch name := strings.TrimPrefix(r.URL.Path, "/"); name {
	case "":
		if r.URL.Path == "" { // mounted without a slash at the end: relative links would miss
			redirectToDirectory(w, r)
			return
		}
		serve(w, "text/html; charset=utf-8", asset("page.html"))
	case "page.js", "draw.js", "table.js":
		serve(w, "text/javascript; charset=utf-8", asset(name))
	case "style.css":
		serve(w, "text/css; charset=utf-8", asset(name))
	case "icon.svg":
		serve(w, "image/svg+xml", asset(name))
	case "state.json", "rejections.json":
		if !c.beginAnswer() {
			h.Set("Retry-After", "1")
			writeProblem(w, http.StatusServiceUnavailable, "busy",
				fmt.Sprintf("All %d concurrent answers are taken: try again.", c.maxStreams))
			return
		}
		defer c.endAnswer()
		if name == "rejections.json" {
			c.find(w, r)
			return
		}
		at, ok := historyOf(w, r)
		if !ok {
			return
		}
		serveJSON(w, r, c.state(at))
	case "dead-letters.json":
		c.serveLetters(w, r)
	case "events":
		c.stream(w, r)
	default:
		writeProblem(w, http.StatusNotFound, "not_found", "The console has no such page.")
	}
}

// beginAnswer reserves one of the concurrent answers with the whole state, each of which is long and takes the service's own
// processor time.
func (c *Console) beginAnswer() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == c.maxStreams {
		return false
	}
	c.answers++
	return true
}

func (c *Console) endAnswer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers--
}

// Guard returns a handler that calls next, unless a page of another site asks, other than by a link, or a browser came by a
// host name outside Config.Hosts: such requests get 403, as from the console itself. Use it for handlers served beside the
// console, such as metrics.
func (c *Console) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code, detail := c.forbidden(r); code != "" {
			writeProblem(w, http.StatusForbidden, code, detail)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// forbidden returns why a request must not be answered. Any site can give its own host name this address (DNS rebinding), so
// an unknown name is rejected; an IP address, or no host, is safe. Another site cannot read the answers to its requests but
// could send them all day: it may only link here.
func (c *Console) forbidden(r *http.Request) (code, detail string) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	known := func(name string) bool { return name == "*" || strings.EqualFold(name, host) }
	if err != nil && host != "" && !known("localhost") && !slices.ContainsFunc(c.cfg.Hosts, known) {
		return "unknown_host", "The console is not asked for by this name: see console.Config.Hosts."
	}
	here := r.Header.Get("Sec-Fetch-Dest") == "document"
	switch r.Header.Get("Sec-Fetch-Site") {
	case "none", "same-origin":
		here = true
	case "": // a browser says no more to an address without TLS that is not its own machine's
		origin := r.Header.Get("Origin")
		from, err := url.Parse(origin)
		here = origin == "" || err == nil && strings.EqualFold(from.Host, r.Host)
	}
	if here {
		return "", ""
	}
	return "cross_site", "Another site asks: open the console itself."
}

// asset returns an embedded file; a missing one is empty, which the tests detect.
func asset(name string) []byte {
	b, _ := assets.ReadFile("assets/" + name)
	return b
}

func serve(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // on failure the client is gone
}

// historyOf returns a cursor at the beginning, or, for ?history=0, one that wants no history. If the query is another, it
// answers.
func historyOf(w http.ResponseWriter, r *http.Request) (at *cursor, ok bool) {
	switch asked := r.URL.Query().Get("history"); asked {
	case "", "0":
		return &cursor{none: asked == "0"}, true
	}
	writeProblem(w, http.StatusBadRequest, "bad_history", "?history= is 0, which leaves history and pools out, or missing.")
	return nil, false
}

// serveJSON answers with v, compressed if the client takes that.
func serveJSON(w http.ResponseWriter, r *http.Request, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		writeProblem(w, http.StatusInternalServerError, "not_encodable", err.Error())
		return
	}
	body = append(body, '\n')
	w.Header().Set("Vary", "Accept-Encoding")
	if takesGzip(r) {
		var b bytes.Buffer
		zip := zippers.Get().(*gzip.Writer)
		zip.Reset(&b)
		_, _ = zip.Write(body) // a buffer takes all
		_ = zip.Close()
		zippers.Put(zip)
		w.Header().Set("Content-Encoding", "gzip")
		body = b.Bytes()
	}
	serve(w, "application/json", body)
}

// zippers are writers that nobody uses: each has most of a megabyte. At their level 500 KB of state become 40 in 2 ms.
//
//nolint:gochecknoglobals // a pool
var zippers = sync.Pool{New: func() any {
	zip, _ := gzip.NewWriterLevel(io.Discard, 3) // the level exists
	return zip
}}

// takesGzip reports whether the client takes gzip.
func takesGzip(r *http.Request) bool {
	for _, field := range r.Header.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(field, ",") {
			name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				return weight == "" || err == nil && q > 0
			}
		}
	}
	return false
}

// redirectToDirectory redirects to the same path with a trailing slash. The target is relative and its only element escaped, so
// it leads nowhere else.
func redirectToDirectory(w http.ResponseWriter, r *http.Request) {
	asked, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		asked = r.URL
	}
	w.Header().Set("Location", "./"+url.PathEscape(path.Base("/"+asked.Path))+"/")
	w.WriteHeader(http.StatusMovedPermanently)
}

// writeProblem answers with a problem (RFC 9457) whose code tools may group by.
func writeProblem(w http.ResponseWriter, status int, code, detail string) {
	// strings and a number
	body, _ := json.Marshal(map[string]any{"title": http.StatusText(status), "status": status, "code": code, "detail": detail})
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
