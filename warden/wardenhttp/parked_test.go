// SPDX-License-Identifier: Apache-2.0

// Event streams after their beginning (H37): they hold no slot, unless they work.

package wardenhttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// startStream answers with an event stream; part sends one part of it.
func startStream(w http.ResponseWriter) (part func()) {
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	return func() {
		_, _ = fmt.Fprint(w, "event: e\n")
		_, _ = fmt.Fprint(w, "data: 1\n\n")
		_ = rc.Flush()
	}
}

// idleMachine is the warden's own controller on a machine that does nothing else, so that a test holds on a busy one.
type idleMachine struct{ *control.Controller }

func (c idleMachine) Step(s monitor.Sample) decision.ControlDecision {
	s.Lag, s.Throttled = monitor.Lag{}, monitor.Reading{}
	s.Utilization, s.Runnable = monitor.Reading{Value: 0.05, OK: true}, monitor.Reading{OK: true}
	return c.Controller.Step(s)
}

func newIdle(t *testing.T) *warden.Warden {
	t.Helper()
	return must(warden.New(warden.Config{Controller: idleMachine{must(control.New(control.Config{}))(t)}}))(t)
}

// Hundreds of streams are opened at the same moment, and short requests with them: nobody is refused.
func TestStreamsOpenedAtOnce(t *testing.T) {
	const streams = 400
	w := newIdle(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stream", func(rw http.ResponseWriter, r *http.Request) {
		part := startStream(rw)
		for range 3 {
			time.Sleep(20 * time.Millisecond)
			part()
		}
		<-r.Context().Done()
	})
	mux.HandleFunc("GET /ok", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "ok") })
	s := startServer(t, must(wardenhttp.New(w, wardenhttp.Config{Timeout: patience}))(t).Handler(mux), true)
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	var opened, done sync.WaitGroup
	call := func(path string) {
		defer done.Done()
		resp, err := s.Client().Do(must(http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, http.NoBody))(t))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("H37: GET %s: %v, %v", path, resp, err)
		}
		opened.Done()
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	opened.Add(2 * streams)
	done.Add(2 * streams)
	for range streams {
		go call("/stream")
		go call("/ok")
	}
	opened.Wait()
	check := func(when string, parked, executed int) {
		t.Helper()
		eventually(t, fmt.Sprintf("H37: %s: %d parked, none run, %d have ended", when, parked, executed), func() bool {
			s := w.Limiter().Stats() // the server is a moment behind
			return s.Parked == parked && s.Running == 0 && s.Executed == uint64(executed)
		})
	}
	check("opened", streams, streams)
	cancel()
	done.Wait()
	check("in the end", 0, 2*streams)
}

// stream opens a stream of h over a connection of its own, and reads whatever comes.
func stream(t *testing.T, h http.Handler, path, body string) net.Conn {
	t.Helper()
	conn := connTo(t, h)
	go func() {
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
		_, _ = io.Copy(io.Discard, conn)
	}()
	return conn
}

func wantStreams(t *testing.T, w *warden.Warden, of string, running, parked int) {
	t.Helper()
	synctest.Wait()
	if s := w.Limiter().Stats(); s.Running != running || s.Parked != parked {
		t.Errorf("%s: %d run and %d are parked, want %d and %d", of, s.Running, s.Parked, running, parked)
	}
}

// Where a stream had many parts and its handler ended it, that was work, and the next of its route hold their slots. A stream that its
// client ends, or that has few parts, only waited.
func TestStreamsThatWork(t *testing.T) {
	for name, c := range map[string]struct {
		parts           int
		ends            bool // the handler does, not the client
		running, parked int  // of the next seventeen
	}{
		"a model's answer":          {10, true, 17, 0},
		"a busy channel":            {1000, false, 0, 17},
		"a watch with a time limit": {3, true, 0, 17},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWarden(t, decision.ControlDecision{Seq: 1, TargetConcurrency: 20, Parked: 100})
			h := handle(t, w, wardenhttp.Config{}, func(rw http.ResponseWriter, r *http.Request) {
				part := startStream(rw)
				for range c.parts {
					time.Sleep(50 * time.Millisecond)
					part()
				}
				if !c.ends {
					<-r.Context().Done()
				}
			})
			first := stream(t, h, "/", "")
			wantStreams(t, w, "H37: the first", 0, 1)
			time.Sleep(time.Hour)
			_ = first.Close()
			synctest.Wait()
			for range 17 {
				stream(t, h, "/", "")
				synctest.Wait()
			}
			wantStreams(t, w, "H37: the next", c.running, c.parked)
		})
	}
}

// What streams of a route have shown, clients neither use up nor make up: however many begin at once, or are left by their clients, each
// that works holds its slot; and one that only waits gets rid of it soon, of whatever kind others of its route were.
func TestStreamsThatMayWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarden(t, decision.ControlDecision{Seq: 1, TargetConcurrency: 40, Parked: 100})
		h := handle(t, w, wardenhttp.Config{}, func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(time.Minute) // a model thinks
			part := startStream(rw)
			for range 20 {
				time.Sleep(50 * time.Millisecond)
				if r.URL.Path == "/model" {
					part()
				}
			}
			if r.URL.Path != "/model" {
				<-r.Context().Done()
			}
		})
		begin := func(path string, n int) (conns []net.Conn) {
			for range n {
				conns = append(conns, stream(t, h, path, "{}"))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			return conns
		}
		begin("/model", 1)
		time.Sleep(time.Minute)
		for range 2 {
			for _, conn := range begin("/model", 40) { // of strangers
				_ = conn.Close()
			}
			time.Sleep(time.Minute)
		}
		begin("/model", 40)
		wantStreams(t, w, "H37: models", 40, 0)
		time.Sleep(time.Minute)
		begin("/events", 20)
		wantStreams(t, w, "H37: events", 20, 0)
		time.Sleep(time.Minute)
		wantStreams(t, w, "H37: events, a minute later", 0, 20)
		begin("/events", 20)
		wantStreams(t, w, "H37: more events", 0, 40)
	})
}

// A stream that found no room among the parked, because memory was short, say, does not keep its slot for its whole life.
func TestStreamsThatFoundNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := decision.ControlDecision{Seq: 1, TargetConcurrency: 20, Parked: 2}
		w := newWarden(t, d)
		h := handle(t, w, wardenhttp.Config{}, func(rw http.ResponseWriter, r *http.Request) {
			startStream(rw)
			<-r.Context().Done()
		})
		conns := make([]net.Conn, 5)
		for i := range conns {
			conns[i] = stream(t, h, "/", "")
			synctest.Wait()
		}
		wantStreams(t, w, "Q24: at once", 3, 2)
		_ = conns[0].Close()
		time.Sleep(time.Minute)
		wantStreams(t, w, "Q24: one has ended", 2, 2)
		d.Seq, d.Parked = 2, 4
		w.Limiter().Apply(d)
		time.Sleep(time.Minute)
		wantStreams(t, w, "Q24: with room", 0, 4)
		for _, conn := range conns {
			_ = conn.Close()
		}
		wantStreams(t, w, "Q24: in the end", 0, 0)
	})
}

// Nobody needs the slot of a stream that has none: its client may be away for longer than the grace, whatever else runs.
func TestStreamsThatAreNotRead(t *testing.T) {
	for name, parked := range map[string]int{"parked": 1, "with a slot": 0} {
		bubble(t, name, func(t *testing.T) {
			w := newWarden(t, decision.ControlDecision{Seq: 1, TargetConcurrency: 2 - parked, Parked: parked})
			ended := make(chan error, 1)
			source := newTransport(t, newGuard(t, 1, 0), roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(nil))}, nil
			}))
			h := handle(t, w, wardenhttp.Config{}, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/events" {
					<-r.Context().Done()
					return
				}
				from := must(source.RoundTrip(newRequest().WithContext(r.Context())))(t) // and holds the last slot there
				defer from.Body.Close()
				startStream(rw)
				_, _ = io.WriteString(rw, "data: 1\n\n")
				ended <- http.NewResponseController(rw).Flush()
			})
			events := connTo(t, h)
			say(events, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
			header := make([]byte, 4096)
			for n := 0; !bytes.Contains(header[:n], []byte("\r\n\r\n")); {
				m := must(events.Read(header[n:]))(t)
				n += m
			}
			synctest.Wait()
			say(connTo(t, h), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			time.Sleep(time.Minute)
			synctest.Wait()
			if s := w.Limiter().Stats(); s.Running+s.Parked != 1+parked {
				t.Errorf("H15: %d run and %d are parked", s.Running, s.Parked)
			}
			go func() { _, _ = io.Copy(io.Discard, events) }()
			if err := <-ended; (err == nil) != (parked == 1) {
				t.Errorf("H15: %v", err)
			}
		})
	}
}

// Uploads that wait for their clients are made up for at once, not only after a second.
func TestUploadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const uploads = 100
		w := newIdle(t)
		running, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = w.Run(running) }()
		h := handle(t, w, wardenhttp.Config{}, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		})
		for range uploads {
			c := connTo(t, h)
			defer func() { _ = c.Close() }()
			say(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nb")
		}
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if s := w.Limiter().Stats(); s.Running != uploads {
			t.Errorf("H37: of %d uploads %d run: %v", uploads, s.Running, w.Latest().Decision)
		}
	})
}
