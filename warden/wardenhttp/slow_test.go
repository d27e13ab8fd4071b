// SPDX-License-Identifier: Apache-2.0

// Clients that send or read next to nothing: what they cost, in virtual time to the instant, and over real connections.

package wardenhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

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
			c := connTo(t, g.handle(t, wardenhttp.Config{Grace: grace, MinRate: rate}, func(_ http.ResponseWriter, r *http.Request) {
				for b := make([]byte, 4<<10); failed == nil; {
					var n int
					n, failed = r.Body.Read(b)
					read += n
				}
				took = time.Since(began)
			}))
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
		h := g.handle(t, wardenhttp.Config{Grace: time.Second}, func(w http.ResponseWriter, _ *http.Request) { parts(w, 3, time.Hour) })
		got := callOnce(t, &http.Server{Handler: h}, "", nil, 0)
		if want := `200, close false, 21 bytes "part 0\npart 1\npart 2\n", <nil> after 3h0m0s`; got != want {
			t.Errorf("H15: %s, want %s", got, want)
		}
		g.wantEmpty(t)
	})
}

// What net/http still has to write when the handler is done is bounded, too: by the grace, or by the server's own time limit.
func TestTheRestOfAnAnswerHasADeadline(t *testing.T) {
	for name, c := range map[string]struct {
		limit, after time.Duration
		want         error
	}{
		"within the grace":           {0, time.Second - 1, nil},
		"after the grace":            {0, time.Second + 1, io.ErrUnexpectedEOF},
		"within the server's limit":  {time.Minute, time.Minute - 1, nil},
		"after the server's limit":   {time.Minute, time.Minute + 1, io.ErrUnexpectedEOF},
		"the server's limit is less": {time.Second / 2, time.Second - 1, io.ErrUnexpectedEOF},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGuard(t, 1, 0)
			h := g.handle(t, wardenhttp.Config{Grace: time.Second}, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "done")
			})
			conn := pipeTo(t, &http.Server{WriteTimeout: c.limit, Handler: h})
			say(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			time.Sleep(c.after)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				resp.Body.Close()
			}
			if !errors.Is(err, c.want) {
				t.Errorf("H15: %s: a client that reads after %v gets the error %v, want %v", name, c.after, err, c.want)
			}
			g.wantEmpty(t)
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
		synctest.Test(t, func(t *testing.T) {
			got := make(chan string, 1)
			c := connTo(t, newGuard(t, 1, 0).handle(t, wardenhttp.Config{Grace: time.Second}, func(w http.ResponseWriter, r *http.Request) {
				word := make([]byte, 4)
				if _, err := io.ReadFull(open(w, r), word); err != nil {
					t.Error(err)
				}
				got <- string(word)
			}))
			go func() { _, _ = io.Copy(io.Discard, c) }()
			must(io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"))(t)
			time.Sleep(time.Hour)
			say(c, "late")
			if word := <-got; word != "late" {
				t.Errorf("H15: %s: %q", name, word)
			}
		})
	}
}

// A request's time ends waiting for its body, too: a handler that reads need not watch its context.
func TestTheDeadlineEndsABodyThatTricklesIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, 1, 0)
		began := time.Now()
		var failed error
		c := connTo(t, exchangeContext(2*time.Second, newHandler(t, g, func(_ http.ResponseWriter, r *http.Request) {
			_, failed = io.Copy(io.Discard, r.Body)
		})))
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

func TestAnswersThatTrickleAreCutOff(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for name, write := range map[string]func(w http.ResponseWriter) error{
			"Write":       func(w http.ResponseWriter) error { _, err := w.Write(make([]byte, 1<<20)); return err },
			"WriteString": func(w http.ResponseWriter) error { _, err := io.WriteString(w, long); return err },
			"ReadFrom": func(w http.ResponseWriter) error {
				_, err := io.Copy(w, io.LimitReader(strings.NewReader(long), 1<<20))
				return err
			},
			"a file": func(w http.ResponseWriter) error {
				f, err := os.CreateTemp(t.TempDir(), "")
				if err != nil {
					return err
				}
				defer f.Close()
				err = f.Truncate(1 << 20)
				_, copied := io.Copy(w, f)
				return errors.Join(err, copied)
			},
			"Flush": func(w http.ResponseWriter) error {
				_, _ = w.Write(make([]byte, 1<<10))
				return http.NewResponseController(w).Flush()
			},
		} {
			g := newGuard(t, 1, 0)
			failed, answered := make(chan error, 1), make(chan struct{})
			s := serve(g.handle(t, wardenhttp.Config{Grace: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
				err := http.NewResponseController(w).Flush()
				select {
				case <-answered: // a client on a busy machine has its headers too
				case <-r.Context().Done():
				}
				for err == nil {
					err = write(w)
				}
				failed <- err
			}))
			resp := send(t, s.Client(), http.MethodGet, s.URL, http.NoBody) // and reads nothing
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

// A server whose HTTP/2 connections have no bound for clients that read nothing is told so once.
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
		h := newHandler(t, newGuard(t, 100, 0), http.NotFound)
		for range 3 {
			r := newRequest()
			r.ProtoMajor = c.proto
			recorded(h, by(server, r))
		}
		if got := strings.Count(logged.String(), "WriteByteTimeout"); got != c.want {
			t.Errorf("H24: %s: told %d times, want %d: %s", name, got, c.want, logged.String())
		}
	}
}
