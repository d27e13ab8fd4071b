// A limit of one's own: a channel of slots, around a server and around a client.

package inflight_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
)

// slots is a semaphore, and a permit of itself: whoever ends gives a slot back.
type slots chan struct{}

func (s slots) tryAcquire() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// End is called once for each request, whatever became of it.
func (s slots) End(inflight.Outcome) { <-s }

// A server has room for one request, and a connection that its handler takes over is still the same request.
func ExampleServe() {
	limit := make(slots, 1)
	hijack := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			fmt.Println(err)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nnews")
		go func() { // closes when the client does
			defer c.Close()
			_, _ = io.Copy(io.Discard, c)
		}()
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !limit.tryAcquire() {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		inflight.Serve(limit, hijack, w, r)
	}))
	defer server.Close()

	for range 2 {
		resp, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 200 OK
	// 503 Service Unavailable
}

// sender sends what its limit admits. It is an http.RoundTripper.
type sender struct{ limit slots }

func (s sender) RoundTrip(req *http.Request) (*http.Response, error) {
	if !s.limit.tryAcquire() {
		return nil, errors.New("busy") // and a RoundTripper closes req.Body
	}
	return inflight.RoundTrip(s.limit, http.DefaultTransport, req)
}

// A client has one request in flight at most: a response whose body is unread is one.
func ExampleRoundTrip() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer server.Close()
	limit := make(slots, 1)
	client := &http.Client{Transport: sender{limit}}
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Status, len(limit))
	_, err = client.Get(server.URL)
	fmt.Println(err != nil)
	resp.Body.Close()
	fmt.Println(len(limit))
	// Output:
	// 200 OK 1
	// true
	// 0
}
