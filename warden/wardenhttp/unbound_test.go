// SPDX-License-Identifier: Apache-2.0

// Servers whose HTTP/2 connections have no bound for clients that read nothing.

package wardenhttp_test

import (
	"bytes"
	"context"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestUnboundHTTP2IsToldOnce(t *testing.T) {
	for name, c := range map[string]struct {
		conf  *http.HTTP2Config
		proto int
		want  int
	}{
		"HTTP/1.1":             {nil, 1, 0},
		"HTTP/2, nothing set":  {nil, 2, 1},
		"HTTP/2, another set":  {&http.HTTP2Config{MaxConcurrentStreams: 10}, 2, 1},
		"HTTP/2, with a bound": {&http.HTTP2Config{WriteByteTimeout: time.Second}, 2, 0},
	} {
		var logged bytes.Buffer
		server := &http.Server{ErrorLog: log.New(&logged, "", 0), HTTP2: c.conf} //nolint:gosec // it serves nothing
		h := newMiddleware(t, newGuard(t, 100, 0), wardenhttp.Config{}).Handler(http.NotFoundHandler())
		for range 3 {
			r := newRequest()
			r.ProtoMajor = c.proto
			h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server)))
		}
		if got := strings.Count(logged.String(), "WriteByteTimeout"); got != c.want {
			t.Errorf("H24: %s: told %d times, want %d: %s", name, got, c.want, logged.String())
		}
	}
}
