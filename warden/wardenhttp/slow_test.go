// SPDX-License-Identifier: Apache-2.0

// Clients that send or read next to nothing: what they cost, in virtual time to the instant, and over real connections.

package wardenhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A pipe is a listener whose connections are in memory, have deadlines and no buffers.
type pipe struct {
	conns chan net.Conn
	once  sync.Once
	down  chan struct{}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.down:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error { p.once.Do(func() { close(p.down) }); return nil }

func (p *pipe) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// inMemory serves h in a bubble until the test ends, and returns a connection to it.
func inMemory(t *testing.T, h http.Handler) net.Conn {
	t.Helper()
	return pipeTo(t, &http.Server{Handler: h})
}

func pipeTo(t *testing.T, s *http.Server) net.Conn {
	p := &pipe{conns: make(chan net.Conn), down: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(p) }()
	client, server := net.Pipe()
	p.conns <- server
	t.Cleanup(func() {
		_ = client.Close()
		_ = s.Close()
		<-served
		time.Sleep(time.Hour) // net/http lingers, and so may the client: no goroutine may be left in the bubble
	})
	return client
}

// say writes to c without waiting for whether somebody reads.
func say(c net.Conn, text string) { go func() { _, _ = io.WriteString(c, text) }() }

func status(t *testing.T, c net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// A client sends its body in pieces with pauses between. It is cut off at the instant at which its spare time is used up,
// and not before, whatever the pieces are; how long it was waited for is bounded by what it has sent.
func TestPropertySlowBodies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// no pause is exactly as long
		grace := time.Duration(rapid.IntRange(1, 5000).Draw(rt, "grace"))*time.Millisecond + time.Microsecond
		rate := rapid.IntRange(1, 10000).Draw(rt, "rate")
		type piece struct {
			pause time.Duration
			bytes int
		}
		pieces := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) piece {
			return piece{
				time.Duration(rapid.IntRange(0, 3000).Draw(rt, "pause")) * time.Millisecond,
				rapid.IntRange(1, 3000).Draw(rt, "bytes"),
			}
		}), 1, 20).Draw(rt, "pieces")

		total, cutAt, at, spare := 0, time.Duration(-1), time.Duration(0), grace
		for _, p := range pieces {
			if total += p.bytes; cutAt >= 0 {
				continue
			}
			if p.pause >= spare {
				cutAt = at + spare
				continue
			}
			at += p.pause
			spare = min(grace, spare-p.pause+time.Duration(float64(p.bytes)/float64(rate)*float64(time.Second)))
		}
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(t, 1, 0)
			began, read := time.Now(), 0
			var failed error
			var took time.Duration
			c := inMemory(t, newMiddleware(t, g, wardenhttp.Config{Grace: grace, MinRate: rate}).Handler(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					for b := make([]byte, 4<<10); failed == nil; {
						var n int
						n, failed = r.Body.Read(b)
						read += n
					}
					took = time.Since(began)
				})))
			go func() {
				_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", total)
				for _, p := range pieces {
					time.Sleep(p.pause)
					if _, err := io.WriteString(c, strings.Repeat("x", p.bytes)); err != nil {
						return
					}
				}
			}()
			got := status(t, c)
			synctest.Wait()
			g.wantInFlight(t, "in the end", 0)
			if cutAt < 0 {
				if failed != io.EOF || got != http.StatusOK || took != at {
					t.Errorf("H15: %v after %v with %d, want the end of the body after %v", failed, took, got, at)
				}
				return
			}
			if !errors.Is(failed, wardenhttp.ErrSlowPeer) || !errors.Is(failed, os.ErrDeadlineExceeded) ||
				got != http.StatusRequestTimeout {
				t.Errorf("H15: %v with %d", failed, got)
			}
			if off := took - cutAt; off < -time.Microsecond || off > time.Microsecond {
				t.Errorf("H15: cut off after %v, want %v", took, cutAt)
			}
			if most := grace + time.Duration(float64(read)/float64(rate)*float64(time.Second)) + time.Microsecond; took > most {
				t.Errorf("H15: %d bytes took %v, want at most %v", read, took, most)
			}
		})
	})
}

// What is not the client's fault costs it nothing: a handler that computes, events that are rare.
func TestOnlyWaitingForTheClientCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, 1, 0)
		const events = 5
		c := inMemory(t, newMiddleware(
			t, g, wardenhttp.Config{Grace: time.Second},
		).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range events {
				time.Sleep(time.Hour)
				if _, err := io.WriteString(w, "data: x\n\n"); err != nil {
					t.Error(err)
				}
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
			}
		})))
		say(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); string(body) != strings.Repeat("data: x\n\n", events) || err != nil {
			t.Errorf("H15: %q, %v", body, err)
		}
		g.wantEmpty(t)
	})
}

// What net/http still has to write when the handler is done is bounded, too: by the grace, or by the server's own time limit.
func TestTheRestOfAnAnswerHasADeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		limit, after time.Duration
		want         error
	}{
		"within the grace":           {0, time.Second - 1, nil},
		"after the grace":            {0, time.Second + 1, io.ErrUnexpectedEOF},
		"within the server's limit":  {time.Minute, time.Minute - 1, nil},
		"after the server's limit":   {time.Minute, time.Minute + 1, io.ErrUnexpectedEOF},
		"the server's limit is less": {time.Second / 2, time.Second - 1, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuard(t, 1, 0)
				c := pipeTo(t, &http.Server{WriteTimeout: tc.limit,
					Handler: newMiddleware(t, g, wardenhttp.Config{Grace: time.Second}).Handler(
						http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }))})
				say(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
				time.Sleep(tc.after)
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err == nil {
					resp.Body.Close()
				}
				if !errors.Is(err, tc.want) {
					t.Errorf("H15: a client that reads after %v gets the error %v, want %v", tc.after, err, tc.want)
				}
				g.wantEmpty(t)
			})
		})
	}
}

// A stream in which the client may be silent: the handler says so, or takes the connection.
func TestAHandlerThatSetsDeadlinesRulesThem(t *testing.T) {
	for name, open := range map[string]func(w http.ResponseWriter, r *http.Request) io.Reader{
		"a deadline of its own": func(w http.ResponseWriter, r *http.Request) io.Reader {
			if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
				t.Error(err)
			}
			return r.Body
		},
		"the connection": func(w http.ResponseWriter, r *http.Request) io.Reader {
			c, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return r.Body
			}
			go func() { <-r.Context().Done(); _ = c.Close() }()
			return buf
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := make(chan string, 1)
				c := inMemory(t, newMiddleware(
					t, newGuard(t, 1, 0), wardenhttp.Config{Grace: time.Second},
				).Handler(http.HandlerFunc(
					func(w http.ResponseWriter, r *http.Request) {
						word := make([]byte, 4)
						if _, err := io.ReadFull(open(w, r), word); err != nil {
							t.Error(err)
						}
						got <- string(word)
					})))
				go func() { _, _ = io.Copy(io.Discard, c) }()
				if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				say(c, "late")
				if word := <-got; word != "late" {
					t.Errorf("H15: %q", word)
				}
			})
		})
	}
}

// A request's time ends waiting for its body, too: a handler that reads need not watch its context.
func TestTheDeadlineEndsABodyThatTricklesIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, 1, 0)
		began := time.Now()
		var failed error
		c := inMemory(t, exchangeContext(2*time.Second, newMiddleware(t, g, wardenhttp.Config{}).Handler(http.HandlerFunc(func(
			_ http.ResponseWriter, r *http.Request,
		) {
			_, failed = io.Copy(io.Discard, r.Body)
		}))))
		say(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nx")
		if got := status(t, c); got != http.StatusGatewayTimeout || time.Since(began) != 2*time.Second ||
			!errors.Is(failed, context.DeadlineExceeded) {
			t.Errorf("%d after %v: %v", got, time.Since(began), failed)
		}
		synctest.Wait()
		g.wantInFlight(t, "in the end", 0)
	})
}

// within gives requests a deadline, as a middleware in front might.
func exchangeContext(d time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// trickle sends a byte at a time until nobody takes them.
func trickle(w io.Writer) {
	for {
		if _, err := io.WriteString(w, "x"); err != nil {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestUploadsThatTrickleAreCutOff(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		g := newGuard(t, 1, 0)
		failed := make(chan error, 1)
		s := serve(newMiddleware(
			t, g, wardenhttp.Config{Grace: 100 * time.Millisecond},
		).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			failed <- err
		})))
		upload, client := io.Pipe()
		defer upload.Close()
		go trickle(client)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, upload)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if err := <-failed; !errors.Is(err, wardenhttp.ErrSlowPeer) || resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("H15: %v, %s", err, resp.Status)
		}
		g.wantEmpty(t)
	})
}

func TestAnswersThatTrickleAreCutOff(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for name, write := range map[string]func(w http.ResponseWriter) error{
			"Write": func(w http.ResponseWriter) error { _, err := w.Write(make([]byte, 1<<20)); return err },
			"WriteString": func(w http.ResponseWriter) error {
				_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
				return err

			},
			"ReadFrom": func(w http.ResponseWriter) error {
				_, err := io.Copy(w, io.LimitReader(strings.NewReader(strings.Repeat("x", 1<<20)), 1<<20))
				return err
			},
			"a file": func(w http.ResponseWriter) error {
				f, err := os.CreateTemp(t.TempDir(), "")
				if err != nil {
					return err
				}
				defer f.Close()
				if err := f.Truncate(1 << 20); err != nil {
					return err
				}
				_, err = io.Copy(w, f)
				return err
			},
			"Flush": func(w http.ResponseWriter) error {
				_, _ = w.Write(make([]byte, 1<<10))
				return http.NewResponseController(w).Flush()
			},
		} {
			g := newGuard(t, 1, 0)
			failed, answered := make(chan error, 1), make(chan struct{})
			s := serve(newMiddleware(
				t, g, wardenhttp.Config{Grace: 50 * time.Millisecond},
			).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := http.NewResponseController(w).Flush(); err != nil {
					failed <- err
					return
				}
				select {
				case <-answered: // a client on a busy machine has its headers too
				case <-r.Context().Done():
				}
				for range 1 << 20 {
					if err := write(w); err != nil {
						failed <- err
						return
					}
				}
			})))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := s.Client().Do(req) // and reads nothing
			if err != nil {
				t.Fatal(err)
			}
			close(answered)
			if err := <-failed; !errors.Is(err, wardenhttp.ErrSlowPeer) {
				t.Errorf("H15: %s: %v", name, err)
			}
			g.wantEmpty(t)
			if s := g.Limiter().Stats(); s.Executed != 1 {
				t.Errorf("H15: %s: %+v", name, s)
			}
			resp.Body.Close()
		}
	})
}

// Slow clients who come back as soon as they are cut off or rejected do not keep the others out.
func TestSlowClientsLeaveRoomForOthers(t *testing.T) {
	const slow, slots = 20, 4
	g := newGuard(t, slots, slots)
	s := startServer(t, newMiddleware(
		t, g, wardenhttp.Config{Grace: 30 * time.Millisecond},
	).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})), false)
	over, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	defer attackers.Wait()
	defer cancel()
	for range slow {
		attackers.Go(func() {
			for over.Err() == nil {
				c, err := new(net.Dialer).DialContext(over, "tcp", s.Listener.Addr().String())
				if err != nil {
					return
				}
				stop := context.AfterFunc(over, func() { _ = c.Close() })
				_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\nx")
				_, _ = c.Read(make([]byte, 1000))
				_ = c.Close()
				stop()
			}
		})
	}
	for hangs := time.Now().Add(patience); g.Limiter().Stats().Rejected == 0 && time.Now().Before(hangs); { // until they take all
		<-time.After(time.Millisecond)
	}
	answered := 0
	for hangs := time.Now().Add(patience); answered < 20 && time.Now().Before(hangs); {
		resp, err := post(t, s)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			answered++
		}
	}
	if answered < 20 {
		t.Errorf("H15: %d requests answered, %+v", answered, g.Limiter().Stats())
	}
}

// A time in which nothing came says nothing about the service.
func TestSlowClientsAreNotCounted(t *testing.T) {
	got := counted(t, func(w *warden.Warden) {
		m, err := wardenhttp.New(w, wardenhttp.Config{Grace: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })).
			ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", late{}))
		if rec.Code != http.StatusRequestTimeout {
			t.Errorf("H9: status %d", rec.Code)
		}
	})
	if got != 0 {
		t.Errorf("H9: %d execution times, want none", got)
	}
}

// late is a body that comes when nobody waits for it any more, over what knows no deadlines.
type late struct{}

func (late) Read([]byte) (int, error) {
	time.Sleep(time.Hour)
	return 0, io.ErrUnexpectedEOF
}
