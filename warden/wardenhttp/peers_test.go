// Bugs that others had, by the issue in which they were told, and that the middleware and the transport do not have.

package wardenhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// zalando/skipper #2579 (#4188): lifo gave the slot back when the backend's headers had come, so that more bodies streamed at once than were allowed.
func TestPeer_SkipperStreamsOvershoot(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		const slots = 2
		backend, release := newGuard(t, slots, 0), make(chan struct{})
		once := sync.OnceFunc(func() { close(release) })
		defer once()
		s := serve(newHandler(t, backend, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush() // the headers have come
			<-release
			_, _ = io.WriteString(w, "the body")
		}))
		client := newGuard(t, slots, 0)
		var streams []*http.Response
		for range slots {
			streams = append(streams, send(t, through(t, client, s), http.MethodPost, s.URL))
		}
		backend.wantInFlight(t, "while bodies stream, in the server", slots)
		client.wantInFlight(t, "while bodies stream, in the client", slots)
		for range 3 {
			wantStatus(t, s, http.StatusServiceUnavailable)
			if resp, err := through(t, client, s).Post(s.URL, "", nil); err == nil { //nolint:noctx // rejected
				resp.Body.Close()
				t.Error("one stream too many")
			}
		}
		once()
		for _, resp := range streams {
			if b, err := io.ReadAll(resp.Body); string(b) != "the body" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			resp.Body.Close()
		}
		backend.wantEmpty(t)
		client.wantEmpty(t)
	})
}
