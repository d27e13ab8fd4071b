// SPDX-License-Identifier: Apache-2.0

// What holds for any request, any answer and any order of things: H3, H4, H7, H11, H17 to H20, R2.

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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Clients come, read, hang up before the answer or in the middle of it; the model is a counter in the handler.
func TestPropertyNeverMoreThanTheTarget(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		g := newGuard(t, 1, 4)
		var target, round, now, seq atomic.Int64
		var failed atomic.Pointer[string]
		seq.Store(7)
		s := startServer(t, newHandler(t, g, func(w http.ResponseWriter, r *http.Request) {
			most := target.Load()
			if r.Header.Get("Round") != strconv.FormatInt(round.Load(), 10) {
				return // it was sent under the decision before, and its client has left
			}
			if n := now.Add(1); n > most {
				why := fmt.Sprintf("H3: %d handlers at once, the target is %d", n, most)
				failed.Store(&why)
			}
			defer now.Add(-1)
			_, _ = io.WriteString(w, "begin")
			_ = http.NewResponseController(w).Flush()
			if r.Header.Get("Long") != "" {
				<-r.Context().Done()
			}
		}), http2)
		rapid.Check(t, func(rt *rapid.T) {
			clients := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 8).Draw(rt, "clients")
			this := strconv.FormatInt(round.Add(1), 10)
			target.Store(rapid.Int64Range(0, 4).Draw(rt, "target"))
			g.Limiter().Apply(decision.ControlDecision{Seq: uint64(seq.Add(1)), TargetConcurrency: int(target.Load())})
			var all sync.WaitGroup
			for _, way := range clients {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond) // who waits for a slot leaves
				req := must(http.NewRequestWithContext(ctx, http.MethodPost, s.URL, http.NoBody))(rt)
				req.Header.Set("Round", this)
				if way == 0 {
					req.Header.Set("Long", "1")
				}
				all.Go(func() {
					defer cancel()
					if way == 1 {
						cancel()
					}
					resp, err := s.Client().Do(req)
					if err != nil {
						return
					}
					if way == 2 {
						_, _ = io.ReadAll(resp.Body)
					}
					resp.Body.Close()
				})
			}
			all.Wait()
			for g.Limiter().Stats().Running > 0 {
				time.Sleep(time.Millisecond) // a server notices later than its client that the request has ended
			}
			if why := failed.Load(); why != nil {
				rt.Fatal(*why)
			}
		})
	}
}

// Of a stranger it is the lower priority that counts; one that is said twice is nobody's. What values mean, package wire tests.
func TestPriorityByTrust(t *testing.T) {
	for value, said := range map[string]decision.Priority{
		"background": decision.Background, "normal": 0, "critical": decision.Critical, "9": 9, "127": 127, "-128": -128,
	} {
		for _, ours := range []decision.Priority{-128, -5, 0, 10, 127} {
			for i, trust := range []func(*http.Request) bool{nil, always(false), always(true)} {
				cfg := wardenhttp.Config{Trusted: trust, Task: func(*http.Request) warden.Task { return warden.Task{Priority: ours} }}
				want, trusted := min(said, ours), i == 2
				if trusted {
					want = said
				}
				r := newRequest("Warden-Priority", value)
				if got := taskOf(t, cfg, r).Priority; got != want {
					t.Errorf("H4: %q, trusted %v, over %d: %d, want %d", value, trusted, ours, got, want)
				}
				r.Header.Add("Warden-Priority", value)
				if got := taskOf(t, cfg, r).Priority; got != ours {
					t.Errorf("H4: %q twice, trusted %v, over %d: %d", value, trusted, ours, got)
				}
			}
		}
	}
}

// The deadline that counts is the earliest of all, whoever sets it and whether anybody is trusted.
func TestPropertyNobodyExtendsADeadline(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		of := func(name string) time.Duration {
			// 0: none
			return time.Duration(rapid.SampledFrom([]int{0, 0, 1, 10, 500, 1000, 60_000}).Draw(rt, name)) * time.Millisecond
		}
		task, timeout, header := of("task"), of("timeout"), of("header")
		garbage := header == 0 && rapid.Bool().Draw(rt, "garbage")
		trusted := rapid.Bool().Draw(rt, "trusted")
		earliest := time.Duration(0)
		for _, d := range []time.Duration{task, timeout, header} {
			if d > 0 && (earliest == 0 || d < earliest) {
				earliest = d
			}
		}
		var got, now time.Time
		synctest.Test(t, func(t *testing.T) {
			now = time.Now()
			r := newRequest()
			if header > 0 {
				r.Header.Set("Warden-Timeout", strconv.FormatInt(header.Milliseconds(), 10))
			} else if garbage {
				r.Header.Set("Warden-Timeout", "soon")
			}
			cfg := wardenhttp.Config{Timeout: timeout, Trusted: always(trusted), Task: func(*http.Request) warden.Task {
				if task == 0 {
					return warden.Task{}
				}
				return warden.Task{Deadline: now.Add(task)}
			}}
			got = taskOf(t, cfg, r).Deadline
		})
		if earliest == 0 && !got.IsZero() || earliest > 0 && !got.Equal(now.Add(earliest)) {
			rt.Fatalf("H4: task %v, timeout %v, header %v: %v, want %v", task, timeout, header, got.Sub(now), earliest)
		}
	})
}

// An able writer can do some of what a ResponseWriter may, and notes what it was asked.
type able struct {
	http.ResponseWriter
	can   []string
	asked []string
}

func (w *able) do(what string) error {
	w.asked = append(w.asked, what)
	if !slices.Contains(w.can, what) {
		return http.ErrNotSupported
	}
	return nil
}

func (w *able) FlushError() error                { return w.do("flush") }
func (w *able) EnableFullDuplex() error          { return w.do("full duplex") }
func (w *able) SetReadDeadline(time.Time) error  { return w.do("read deadline") }
func (w *able) SetWriteDeadline(time.Time) error { return w.do("write deadline") }

// A flushing writer is one that a handler may take for an http.Flusher.
type flushing struct{ *able }

func (w flushing) Flush() { _ = w.FlushError() }

// Whatever the original can do, a handler can have done, and whatever it cannot is refused in the same way.
func TestTheWriterKeepsItsAbilities(t *testing.T) {
	all := []string{"flush", "full duplex", "read deadline", "write deadline"}
	for which := range 1 << len(all) {
		for _, timeout := range []time.Duration{0, time.Hour} {
			w := &able{ResponseWriter: httptest.NewRecorder()}
			for i, what := range all {
				if which&(1<<i) != 0 {
					w.can = append(w.can, what)
				}
			}
			h := newGuard(t, 1, 0).handle(t, wardenhttp.Config{Timeout: timeout}, func(rw http.ResponseWriter, _ *http.Request) {
				rc := http.NewResponseController(rw)
				for what, ask := range map[string]func() error{
					"flush": rc.Flush, "full duplex": rc.EnableFullDuplex,
					"read deadline":  func() error { return rc.SetReadDeadline(time.Time{}) },
					"write deadline": func() error { return rc.SetWriteDeadline(time.Time{}) },
				} {
					w.asked = nil
					err := ask()
					if can := slices.Contains(w.can, what); can != (err == nil) || !can && !errors.Is(err, http.ErrNotSupported) ||
						!slices.Contains(w.asked, what) {
						t.Errorf("H7: %s of a writer that can do %v: %v, it was asked for %v", what, w.can, err, w.asked)
					}
				}
			})
			h.ServeHTTP(w, newRequest())
			h.ServeHTTP(flushing{w}, newRequest())
		}
	}
}

// Requests that are exempt are answered whatever the limiter does, and it never hears of them.
func TestExemptAsksNobody(t *testing.T) {
	for slots, want := range []int{http.StatusServiceUnavailable, http.StatusNoContent} {
		g := newGuard(t, slots, 0)
		cfg := wardenhttp.Config{Exempt: func(r *http.Request) bool { return r.URL.Path == "/healthz" }}
		h := g.handle(t, cfg, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		for asked := range 3 {
			if rec := recorded(h, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody)); rec.Code != http.StatusNoContent {
				t.Errorf("H11: %d", rec.Code)
			}
			if started, rejected, _, _ := g.counts(); started+rejected != asked {
				t.Errorf("H11: %d were asked for, the limiter heard of %d", asked, started+rejected)
			}
			if rec := recorded(h, newRequest()); rec.Code != want {
				t.Errorf("H11: beside it %d, want %d", rec.Code, want)
			}
		}
	}
}

// A patient writer notes until when its server would wait for the rest of a body, and for that of the answer.
type patient struct {
	http.ResponseWriter
	until, written time.Time
}

func (w *patient) SetReadDeadline(t time.Time) error  { w.until = t; return nil }
func (w *patient) SetWriteDeadline(t time.Time) error { w.written = t; return nil }

// A body that nobody has read to its end is waited for by the server: half a second at most after a rejection, and Grace when its
// handler is done.
func TestPropertyUnreadBodiesEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rejected := rapid.Bool().Draw(rt, "rejected")
		length := rapid.Int64Range(-1, 1<<20).Draw(rt, "length")
		if length == 0 {
			length = -1
		}
		read := rapid.IntRange(0, 8).Draw(rt, "read")
		grace := time.Duration(rapid.IntRange(1, 30).Draw(rt, "grace")) * time.Second
		works := time.Duration(rapid.IntRange(0, 5).Draw(rt, "works")) * time.Second
		var left time.Duration
		synctest.Test(t, func(t *testing.T) {
			slots := 1
			if rejected {
				slots = 0
			}
			h := newGuard(t, slots, 0).handle(t, wardenhttp.Config{Grace: grace}, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadFull(r.Body, make([]byte, read))
				time.Sleep(works)
			})
			w := &patient{ResponseWriter: httptest.NewRecorder()}
			head := "Transfer-Encoding: chunked\r\n\r\n3E8\r\n"
			if length > 0 {
				head = fmt.Sprintf("Content-Length: %d\r\n\r\n", length)
			}
			r := must(http.ReadRequest(bufio.NewReader(strings.NewReader("POST / HTTP/1.1\r\nHost: x\r\n" + head + strings.Repeat("x", 1000)))))(t)
			h.ServeHTTP(w, r)
			left = time.Until(w.until)
			if closes := w.Header().Get("Connection") == "close"; closes != (rejected && (length < 0 || length > 64<<10)) {
				t.Errorf("H10: rejected %v, a body of %d bytes: the connection is closed %v", rejected, length, closes)
			}
		})
		most := grace
		if rejected {
			most = 500 * time.Millisecond
		}
		if left > most {
			rt.Fatalf("H17: rejected %v, Grace %v: the rest of the body is waited for another %v", rejected, grace, left)
		}
		if whole := !rejected && length > 0 && int(length) <= read; left < 0 && !whole {
			rt.Fatalf("H17: rejected %v, Grace %v: nothing bounds the wait for the rest of the body", rejected, grace)
		}
	})
}

// The name of a task that is remembered lies nowhere in its request's own memory.
func TestNamesAreTheirOwn(t *testing.T) {
	for _, length := range []int{1, 256, 257, 1000} {
		for _, from := range []string{"a header", "the path", "a pattern of one's own", "a pattern that is a piece"} {
			line := strings.Repeat("x", length+10)
			r := newRequest()
			cfg := wardenhttp.Config{Task: func(*http.Request) warden.Task { return warden.Task{Name: line[5 : 5+length]} }}
			switch from {
			case "a header":
				r.Header.Set("Name", line)
			case "the path":
				r.RequestURI, r.URL.Path = line, line
			case "a pattern of one's own":
				r.Pattern = strings.Clone(line[5 : 5+length])
			default:
				if r.Pattern = line[5 : 5+length]; length <= 256 {
					continue // a mux has it, and it is a route's
				}
			}
			g := newGuard(t, 0, 0) // what it rejects it remembers
			recorded(newMiddleware(t, g, cfg).Handler(nil), r)
			name := g.Limiter().Recent()[0].Task.Name
			begin, at := uintptr(unsafe.Pointer(unsafe.StringData(line))), uintptr(unsafe.Pointer(unsafe.StringData(name)))
			if shared := at >= begin && at < begin+uintptr(len(line)); name != line[:min(length, 256)] || shared {
				t.Errorf("H18: from %s: %d bytes, want %d, in the request's memory: %v", from, len(name), min(length, 256), shared)
			}
		}
	}
}

// Some handlers are slower than the TimeoutHandler around them waits: the first of them is told of, and no other.
func TestATimeoutHandlerInsideIsToldOnce(t *testing.T) {
	for _, where := range []string{"inside", "outside", "nowhere"} {
		bubble(t, where, func(t *testing.T) {
			var logged bytes.Buffer
			server := &http.Server{ErrorLog: log.New(&logged, "", 0)} //nolint:gosec // it serves nothing
			m := newMiddleware(t, newGuard(t, 100, 0), wardenhttp.Config{})
			slow := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Slow") != "" {
					time.Sleep(time.Minute)
				}
				if where == "nowhere" { // a 503 of its own
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			h := m.Handler(slow)
			switch where {
			case "inside":
				h = m.Handler(http.TimeoutHandler(slow, time.Second, ""))
			case "outside":
				h = http.TimeoutHandler(h, time.Second, "")
			}
			for i, header := range [][]string{nil, {"Slow", "1"}, nil, {"Slow", "1"}} {
				recorded(h, by(server, newRequest(header...)))
				told := strings.Count(logged.String(), "http.TimeoutHandler inside the middleware")
				if told != number(where == "inside" && i > 0) {
					t.Errorf("H19: told %d times after request %d", told, i)
				}
			}
			time.Sleep(time.Hour)
		})
	}
}

// Ready is answered until Drain, whatever is rejected meanwhile, and not from then on.
func TestReadyUntilItDrains(t *testing.T) {
	var ready wardenhttp.Readiness
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		for range 3 {
			recorded(newHandler(t, newGuard(t, 0, 0), nil), newRequest())
			if rec := recorded(&ready, newRequest()); rec.Code != want {
				t.Errorf("H20: %d, want %d", rec.Code, want)
			}
		}
		ready.Drain()
	}
}

// Attempts take their time and end as they like, at a dependency that rejects so much that budget and throttle have their say.
// None is ended but by its caller, or as the loser of a hedge; and of two, one answers.
func TestPropertyWhatHasStartedEndsByItself(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		hedge := time.Duration(rapid.SampledFrom([]int{0, 3, 9}).Draw(rt, "hedge after")) * time.Millisecond
		takes := rapid.SliceOfN(rapid.IntRange(1, 20), 30, 30).Draw(rt, "takes")
		rejects := rapid.SliceOfN(rapid.Bool(), 30, 30).Draw(rt, "rejects")
		calls := rapid.IntRange(1, 20).Draw(rt, "calls")
		ratio := rapid.SampledFrom([]float64{0.01, 0.5, 1}).Draw(rt, "ratio")
		wrong := ""
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards all below
			attempts, answered := 0, map[string]bool{}
			base := roundTrip(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				i := attempts % len(takes)
				attempts++
				mu.Unlock()
				id := r.Header.Get("Id")
				select {
				case <-time.After(time.Duration(takes[i]) * 2 * time.Millisecond): // even: a hedge begins at an odd one
				case <-r.Context().Done():
					mu.Lock()
					defer mu.Unlock()
					if !answered[id] {
						wrong = "R2: an attempt was ended, and no other had answered"
					}
					return nil, r.Context().Err()
				}
				mu.Lock()
				defer mu.Unlock()
				if rejects[i] {
					return respond(http.StatusServiceUnavailable, http.NoBody), nil
				}
				answered[id] = true
				return respond(http.StatusOK, http.NoBody), nil
			})
			c := newCaller(t, retry.Config{Ratio: ratio, MinRetries: 1, Backoff: time.Millisecond, Rand: func() float64 {
				return 0
			}})
			rt := newRetry(t, c, wardenhttp.RetryConfig{Base: base, HedgeAfter: hedge})
			var all sync.WaitGroup
			for i := range calls {
				time.Sleep(2 * time.Millisecond)
				all.Go(func() {
					req := newRequest()
					req.Header.Set("Id", strconv.Itoa(i))
					resp, err := rt.RoundTrip(req)
					if err != nil && !errors.Is(err, retry.ErrThrottled) {
						mu.Lock()
						wrong = fmt.Sprintf("R2: %v", err)
						mu.Unlock()
					} else if err == nil {
						resp.Body.Close()
					}
				})
			}
			all.Wait()
			time.Sleep(time.Minute)
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}
