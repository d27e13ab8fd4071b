// SPDX-License-Identifier: Apache-2.0

// The stream: its framing, what each event adds, how it ends, and what readers that do not read can do, which is little.

package console

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/limiter"
)

func use(t testing.TB, w *warden.Warden) {
	t.Helper()
	must(warden.Do(t.Context(), w, warden.Task{}, func(context.Context) (int, error) { return 1, nil }))(t)
}

func TestStreamFraming(t *testing.T) {
	c := mustNew(
		t, Config{Warden: mustWarden(t, new(script)), Title: "one\nevent: state\rdata: {}\n\n", Interval: 100 * time.Millisecond},
	)
	f := follow(t, mount(t, c))
	if kind := f.answer.Header.Get("Content-Type"); kind != "text/event-stream" || f.answer.StatusCode != 200 {
		t.Fatalf("%s, %s", f.answer.Status, kind)
	}
	if f.answer.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("a proxy may collect: %v", f.answer.Header)
	}
	if first := f.event(); len(first) != 1 || first[0] != "retry: 2000" {
		t.Fatalf("it opens with %q", first)
	}
	for range 3 {
		event := f.event()
		if len(event) != 2 || event[0] != "event: state" || !strings.HasPrefix(event[1], "data: {") ||
			strings.Contains(event[1], "\r") {
			t.Fatalf("an event is %q", event)
		}
		if title := at(t, decode(t, event[1][len("data: "):]), "title"); title != "one\nevent: state\rdata: {}\n\n" {
			t.Fatalf("the title is %q", title)
		}
	}
}

// recorder takes a stream in a bubble, where no network can be; each write is handed to the test.
type recorder struct {
	header http.Header
	events chan string
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(int)             {}
func (r *recorder) Flush()                      {}
func (r *recorder) Write(b []byte) (int, error) { r.events <- string(b); return len(b), nil }

// TestStreamAdds: the first event has all of the past, whether anybody looked before or not; those that follow, one in an
// interval, have what is new; nothing twice and nothing missing, also for a second reader at another instant.
func TestStreamAdds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := mustWarden(t, new(script)), mustLimiter(t, 3)
		c := mustNew(t, Config{Warden: w, Limiters: map[string]*limiter.Limiter{"reports": l}})
		turns := 0
		turn := func(n int) {
			for range n {
				time.Sleep(100 * time.Millisecond)
				use(t, w)
				turns++
			}
		}
		turn(25) // while nobody looks
		type reader struct {
			*recorder
			seen []string
			end  context.CancelFunc
		}
		watch := func() *reader {
			ctx, cancel := context.WithCancel(t.Context())
			r := &reader{&recorder{http.Header{}, make(chan string, 100)}, nil, cancel}
			go c.ServeHTTP(r, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/events", nil))
			return r
		}
		take := func(r *reader) {
			for len(r.events) > 0 {
				event := <-r.events
				_, data, _ := strings.Cut(event, "data: ")
				for _, p := range at(t, decode(t, data), "history").([]any) {
					r.seen = append(r.seen, fmt.Sprint(at(t, p, "seq")))
				}
			}
		}
		check := func(name string, r *reader) {
			t.Helper()
			for i, seq := range r.seen {
				if seq != fmt.Sprint(i+1) {
					t.Fatalf("%s: reading %d is of decision %s", name, i+1, seq)
				}
			}
		}
		first := watch()
		synctest.Wait()
		if n := len(first.events); n != 1 {
			t.Fatalf("%d events at once", n)
		}
		take(first)
		if first.header.Get("Connection") != "close" {
			t.Fatal("another request may come on this connection, under the write deadline of the stream")
		}
		if len(first.seen) != 25 {
			t.Fatalf("the first event has %d readings, want 25", len(first.seen))
		}
		time.Sleep(50 * time.Millisecond)
		turn(13)
		second := watch()
		turn(20)
		synctest.Wait()
		if a, b := len(first.events), len(second.events); a != 3 || b != 3 {
			t.Fatalf("%d and %d events, want 3 in 3.35 s and 3 in 2", a, b)
		}
		take(first)
		take(second)
		check("first", first)
		check("second", second)
		if n := len(second.seen); n < turns-10 || n > turns {
			t.Fatalf("the second reader saw %d of %d", n, turns)
		}
		// Two readers, one look in an interval: limiters are not remembered twice as often.
		if n := len(c.history.pools); n != 4 {
			t.Fatalf("the limiter was remembered %d times in 3.35 s, want 4", n)
		}
		first.end()
		synctest.Wait()
		if c.streams != 1 {
			t.Fatalf("%d streams after one went away", c.streams)
		}
		c.Close()
		synctest.Wait()
		if c.streams != 0 {
			t.Fatalf("%d streams after Close", c.streams)
		}
		second.end()
	})
}

// TestStreamBound: no more than maxStreams; a slot is free again when its reader is gone; the rest of the console is not
// affected.
func TestStreamBound(t *testing.T) {
	c := mustNew(t, Config{Warden: mustWarden(t, new(script)), Interval: 100 * time.Millisecond})
	c.maxStreams = 2
	url := mount(t, c)
	a, b := follow(t, url), follow(t, url)
	a.state()
	b.state()
	answer, body := get(t, url+"events")
	if answer.StatusCode != 503 || at(t, decode(t, body), "code") != "too_many_streams" ||
		answer.Header.Get("Retry-After") != "5" ||
		answer.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("the third: %s, %s", answer.Status, body)
	}
	if answer, _ := get(t, url+"state.json"); answer.StatusCode != 200 {
		t.Fatalf("state.json: %s", answer.Status)
	}
	a.cancel()
	for deadline := time.Now().Add(time.Minute); ; {
		c := follow(t, url)
		if c.answer.StatusCode == 200 {
			c.state()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the slot of a reader that is gone was not given back")
		}
	}
	b.state()
}

// TestShutdown: a server that closes the console when it shuts down is not held up by its streams, and nothing new is streamed.
func TestShutdown(t *testing.T) {
	c := mustNew(t, Config{Warden: mustWarden(t, new(script))})
	server := &http.Server{Handler: c, ReadHeaderTimeout: time.Second}
	server.RegisterOnShutdown(c.Close)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	f := follow(t, "http://"+listener.Addr().String()+"/")
	f.state()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	noError(t, server.Shutdown(ctx))
	if err := <-served; err != http.ErrServerClosed {
		t.Fatal(err)
	}
	if event := f.event(); event != nil {
		t.Fatalf("after the end: %q", event)
	}
	c.Close()
	if w := ask(c, "events"); w.Code != 503 || at(t, decode(t, w.Body.String()), "code") != "closed" {
		t.Fatalf("after Close: %d, %s", w.Code, w.Body)
	}
	if w := ask(c, "state.json"); w.Code != 200 {
		t.Fatalf("state.json after Close: %d", w.Code)
	}
}

// TestSlowReader: a reader that does not read is cut off, and until then it holds up nobody: neither another reader nor the
// warden.
func TestSlowReader(t *testing.T) {
	w := mustWarden(t, new(script))
	c := mustNew(t, Config{Warden: w, Interval: 100 * time.Millisecond, Title: strings.Repeat("T", 200)})
	c.writeTimeout = 300 * time.Millisecond
	server := httptest.NewUnstartedServer(c)
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		_ = conn.(*net.TCPConn).SetWriteBuffer(1) // as little as the kernel allows
		return ctx
	}
	server.Start()
	t.Cleanup(func() { c.Close(); server.Close() })

	conn := must((&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String()))(t)
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(1)
	fmt.Fprint(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	var head [12]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil || string(head[:]) != "HTTP/1.1 200" {
		t.Fatalf("%q, %v", head, err)
	}
	streams := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.streams
	}
	f := follow(t, server.URL+"/")
	for f.state(); streams() == 2; f.state() { // the other reader reads on, until the slow one is cut off
		use(t, w)
	}
	use(t, w)
	f.state()
}
