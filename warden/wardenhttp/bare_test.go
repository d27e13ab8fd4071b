// SPDX-License-Identifier: Apache-2.0

// What real services do with their clients' time: behind the middleware, with a Timeout, it goes as without.

package wardenhttp_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

const second = time.Second // the Timeout of all of these

// parts answers in parts.
func parts(w http.ResponseWriter, n int, pause time.Duration) {
	for i := range n {
		time.Sleep(pause)
		_, _ = fmt.Fprintf(w, "part %d\n", i)
		_ = http.NewResponseController(w).Flush()
	}
}

// services are handlers, and what their clients send and how they read.
var services = map[string]struct {
	serve http.HandlerFunc
	head  string        // of the request
	body  []string      // sent in pieces
	pause time.Duration // before each piece, and before each KiB that the client reads
}{
	"an event stream": {func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
		parts(w, 5, 3*second)
	}, "", nil, 0},
	"gRPC over HTTP/1": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc-web+proto")
		parts(w, 2, 3*second/5)
		<-time.After(3 * second)
		_, _ = fmt.Fprint(w, r.Context().Err())
	}, "", nil, 0},
	"a long answer in parts": {func(w http.ResponseWriter, r *http.Request) {
		parts(w, 5, second*4/5)
		_, _ = fmt.Fprint(w, r.Context().Err())
	}, "", nil, 0},
	"a download at the client's pace": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "8192")
		for range 8 {
			if _, err := w.Write([]byte(strings.Repeat("x", 1024))); err != nil || r.Context().Err() != nil {
				return
			}
		}
	}, "", nil, 13 * second},
	"an upload at the client's pace": {func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		time.Sleep(second * 4 / 5)
		_, _ = fmt.Fprint(w, n, err, r.Context().Err())
	}, "Content-Length: 15\r\n", []string{"three", "small", "words"}, 13 * second},
	"a chunked upload": {func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, err)
	}, "Transfer-Encoding: chunked\r\n", []string{"2\r\nab\r\n", "1\r\nc\r\n", "0\r\n\r\n"}, 13 * second},
	"a connection taken over": {func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		time.Sleep(3 * second)
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%v", r.Context().Err())
	}, "", nil, 0},
	"too large a body": {func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 1000)); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}
	}, "Content-Length: 200000\r\n", []string{strings.Repeat("x", 2000)}, 0},
	"a short body unread": {func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}, "Content-Length: 5\r\n", []string{"three"}, 0},
	"a body that nobody asked for": {func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}, "Content-Length: 5\r\nExpect: 100-continue\r\n", nil, 0},
}

// callOnce is what a client gets of a handler, and when.
func callOnce(t *testing.T, server *http.Server, head string, body []string, pause time.Duration) (got string) {
	began := time.Now()
	c := pipeTo(t, server)
	go func() {
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\n"+head+"\r\n")
		for _, piece := range body {
			time.Sleep(pause)
			_, _ = io.WriteString(c, piece)
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReaderSize(slowly{c, pause}, 1024), &http.Request{Method: http.MethodPost})
	if err != nil {
		return fmt.Sprintf("%v after %v", err, time.Since(began))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d, close %t, %d bytes %q, %v after %v", resp.StatusCode, resp.Close, len(text), text[:min(len(text), 100)], err, time.Since(began).Round(time.Microsecond))
}

// slowly reads with pauses.
type slowly struct {
	net.Conn
	pause time.Duration
}

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.Conn.Read(p)
}

func TestServicesGoAsWithout(t *testing.T) {
	for name, s := range services {
		bubble(t, name, func(t *testing.T) {
			want := callOnce(t, &http.Server{Handler: s.serve}, s.head, s.body, s.pause)
			g := newGuard(t, 2, 0)
			c := compartment(t, bulkhead.CompartmentConfig{Timeout: second, Guaranteed: 2})
			for where, h := range map[string]http.Handler{
				"a warden":      g.handle(t, wardenhttp.Config{Timeout: second}, s.serve),
				"a compartment": handle(t, nil, wardenhttp.Config{Compartment: in(c)}, s.serve),
			} {
				if got := callOnce(t, &http.Server{Handler: h}, s.head, s.body, s.pause); got != want {
					t.Errorf("H34: behind %s: %s\nwithout: %s", where, got, want)
				}
			}
		})
	}
}

// What hangs ends: before its answer, though its client asks for events, in the middle of it, and after its body has come.
func TestTimeoutEndsWhatHangs(t *testing.T) {
	for name, c := range map[string]struct {
		serve func(w http.ResponseWriter, r *http.Request)
		after time.Duration
	}{
		"at once":       {func(http.ResponseWriter, *http.Request) {}, second},
		"in the middle": {func(w http.ResponseWriter, _ *http.Request) { parts(w, 3, second/2) }, 3*second/2 + second},
		"after the body": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		}, 2*13*second + second},
	} {
		bubble(t, name, func(t *testing.T) {
			ended := time.Duration(0)
			h := newGuard(t, 2, 0).handle(t, wardenhttp.Config{Timeout: second}, func(w http.ResponseWriter, r *http.Request) {
				began := time.Now()
				c.serve(w, r)
				<-r.Context().Done()
				ended = time.Since(began)
			})
			head, body, pause := "Accept: text/event-stream\r\n", []string(nil), time.Duration(0)
			if name == "after the body" {
				head, body, pause = "Content-Length: 2\r\n", []string{"a", "b"}, 13*second
			}
			callOnce(t, &http.Server{Handler: h}, head, body, pause)
			if ended != c.after {
				t.Errorf("H34: ended after %v, want %v", ended, c.after)
			}
		})
	}
}

// A slow client keeps its slot while nobody else needs it, and loses it soon after; and so the slots of what it is sent on to.
func TestSlowClientsGiveWay(t *testing.T) {
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		_, err := io.Copy(io.Discard, r.Body)
		return nil, err
	})
	for name, need := range map[string]func(t *testing.T, own *guard) (sends http.RoundTripper, need func()){
		"its own": func(t *testing.T, own *guard) (http.RoundTripper, func()) {
			return base, func() { must(own.TryAcquire(warden.Task{}))(t) }
		},
		"a warden's": func(t *testing.T, _ *guard) (http.RoundTripper, func()) {
			g := newGuard(t, 2, 0)
			return newTransport(t, g, base), func() { must(g.TryAcquire(warden.Task{}))(t) }
		},
		"a compartment's": func(t *testing.T, _ *guard) (http.RoundTripper, func()) {
			c := compartment(t, bulkhead.CompartmentConfig{Guaranteed: 2})
			return sentIn(t, c, base), func() { _, _, _ = c.Acquire(t.Context()) }
		},
		"that of a breaker that tries one": func(t *testing.T, _ *guard) (http.RoundTripper, func()) {
			b := &fuse{}
			c := compartment(t, bulkhead.CompartmentConfig{Guaranteed: 2, Breaker: b})
			return sentIn(t, c, base), func() { b.open = errAny; _, _, _ = c.Acquire(t.Context()) }
		},
	} {
		bubble(t, name, func(t *testing.T) {
			own, failed := newGuard(t, 2, 0), make(chan error, 1)
			rt, need := need(t, own)
			c := connTo(t, newHandler(t, own, func(_ http.ResponseWriter, r *http.Request) {
				_, err := rt.RoundTrip(r)
				failed <- err
			}))
			say(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx")
			time.Sleep(time.Hour)
			own.wantInFlight(t, "H15: alone", 1)
			need()
			select {
			case err := <-failed:
				if !errors.Is(err, wardenhttp.ErrSlowPeer) {
					t.Errorf("H15: %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("H15: it still keeps the slot that others need")
			}
		})
	}
}

// An answer that does not need a long body comes at once, and one whose body must be drained has its time afterwards.
func TestAnswersBeforeTheBody(t *testing.T) {
	for name, c := range map[string]struct {
		length, sent int
		timeout      time.Duration // the server's ReadTimeout
		after        time.Duration
	}{
		"long":                           {200_000, 2000, 0, 0},
		"short, and stops":               {2000, 1000, 0, 10 * second},
		"short, a server's ReadTimeout":  {2000, 1000, 3 * second, 3 * second},
		"short, a longer ReadTimeout":    {2000, 1000, time.Minute, 10 * second},
		"short, whole":                   {2000, 2000, 0, 0},
		"long, but the server's is less": {200_000, 2000, 3 * second, 0},
	} {
		bubble(t, name, func(t *testing.T) {
			h := newHandler(t, newGuard(t, 1, 0), func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
			})
			conn, began := pipeTo(t, &http.Server{ReadTimeout: c.timeout, Handler: h}), time.Now()
			say(conn, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", c.length, strings.Repeat("x", c.sent)))
			if got := status(t, conn); got != http.StatusUnauthorized || time.Since(began) != c.after {
				t.Errorf("H35: %d after %v, want 401 after %v", got, time.Since(began), c.after)
			}
		})
	}
}

// A dry run cuts nothing off, for want of time or pace, and says so once; back in Enforce, all counts again.
func TestADryRunIsDry(t *testing.T) {
	for name, limit := range map[string]func(*testing.T, wardenhttp.Config, http.HandlerFunc) (http.Handler, func(decision.Mode)){
		"a warden": func(t *testing.T, cfg wardenhttp.Config, next http.HandlerFunc) (http.Handler, func(decision.Mode)) {
			g := newGuard(t, 1, 0)
			return g.handle(t, cfg, next), func(mode decision.Mode) { noError(t, g.Limiter().SetMode(mode)) }
		},
		"a compartment": func(t *testing.T, cfg wardenhttp.Config, next http.HandlerFunc) (http.Handler, func(decision.Mode)) {
			set := must(bulkhead.New(bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{{Name: "a", Guaranteed: 1}}}))(t)
			cfg.Compartment = in(set.Compartment("a"))
			return handle(t, nil, cfg, next), func(mode decision.Mode) {
				p := set.Plan()
				p.Compartments[0].Mode = mode
				must(set.Resize(p))(t)
			}
		},
	} {
		bubble(t, name, func(t *testing.T) {
			logged := new(lines)
			slow, set := limit(t, wardenhttp.Config{Timeout: second, Grace: second}, func(w http.ResponseWriter, r *http.Request) {
				n, err := io.Copy(io.Discard, r.Body)
				time.Sleep(2 * second)
				if r.Context().Err() == nil {
					_, _ = fmt.Fprint(w, n, err)
				}
			})
			visit := func() string {
				server := &http.Server{Handler: slow, ErrorLog: log.New(logged, "", 0)}
				return callOnce(t, server, "Content-Length: 2\r\nWarden-Timeout: 1500\r\n", []string{"a", "b"}, 3*second)
			}
			for _, mode := range []decision.Mode{decision.DryRun, decision.Bypass} {
				set(mode)
				if got := visit(); !strings.HasPrefix(got, `200, close false, 7 bytes "2 <nil>"`) {
					t.Errorf("H36: %v: %s", mode, got)
				}
			}
			if n := strings.Count(logged.String(), "not enforcing"); n != 1 {
				t.Errorf("H36: %d lines, want 1: %s", n, logged)
			}
			set(decision.Enforce)
			if got := visit(); !strings.HasPrefix(got, "408") && !strings.HasPrefix(got, "504") {
				t.Errorf("H36: enforced: %s", got)
			}
		})
	}
}

// A watcher sees how long the executions took that a warden counted.
type watcher struct{ took []time.Duration }

func (w *watcher) Step(s monitor.Sample) decision.ControlDecision {
	if s.Service.Count > 0 {
		w.took = append(w.took, s.Service.P50)
	}
	return decision.ControlDecision{Seq: 1, TargetConcurrency: 2}
}

// How long a client takes says nothing of how long the work does.
func TestExecutionTimesLeaveTheClientOut(t *testing.T) {
	for _, name := range []string{"an upload at the client's pace", "a download at the client's pace"} {
		bubble(t, name, func(t *testing.T) {
			seen, s := new(watcher), services[name]
			w := must(warden.New(warden.Config{Controller: seen, Limiter: limiter.Config{Initial: seen.Step(monitor.Sample{})}}))(t)
			h := handle(t, w, wardenhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(second / 5)
				s.serve(w, r)
			})
			callOnce(t, &http.Server{Handler: h}, s.head, s.body, s.pause)
			time.Sleep(second)
			w.SampleIfDue()
			if len(seen.took) != 1 || seen.took[0] < second/5*9/10 || seen.took[0] > second*11/10 {
				t.Errorf("H9: %v", seen.took)
			}
		})
	}
}
