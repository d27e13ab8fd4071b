// SPDX-License-Identifier: Apache-2.0

// What holds for any request, any answer and any order of things: H3 to H7, H9 to H11, H17 to H20, R2.

package wardenhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
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
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
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

// The model knows four words and whole numbers from -128 to 127, written once; of a stranger it takes the lower one.
func TestPropertyPriorityByTrust(t *testing.T) {
	words := map[string]decision.Priority{
		"background": decision.Background, "normal": 0, "high": decision.High, "critical": decision.Critical,
	}
	rapid.Check(t, func(rt *rapid.T) {
		ours := decision.Priority(rapid.Int8().Draw(rt, "ours"))
		values := rapid.SliceOfN(rapid.OneOf(
			rapid.Map(rapid.IntRange(-300, 300), strconv.Itoa),
			rapid.SampledFrom([]string{"background", "normal", "high", "critical"}),
			rapid.StringMatching(`[-+ x.,]?[0-9a-z]{0,4}[ .]?`)), 0, 2).Draw(rt, "values")
		trusted := rapid.Bool().Draw(rt, "trusted")
		want := ours
		if len(values) == 1 {
			said, known := words[values[0]]
			if n, err := strconv.Atoi(values[0]); regexp.MustCompile(`^(0|-?[1-9]\d*)$`).MatchString(values[0]) && err == nil &&
				n >= -128 && n <= 127 {
				said, known = decision.Priority(n), true
			}
			if known && (trusted || said < ours) {
				want = said
			}
			if regexp.MustCompile(`^-?0\d+$|^-0$`).MatchString(values[0]) {
				return // leading zeros: nobody says
			}
		}
		r := newRequest()
		r.Header["Warden-Priority"] = values
		cfg := wardenhttp.Config{Task: func(*http.Request) warden.Task {
			return warden.Task{Priority: ours}
		}, Trusted: func(*http.Request) bool { return trusted }}
		if got := taskOf(t, cfg, r).Priority; got != want {
			rt.Fatalf("H4: %q, trusted %v, over %d: %d, want %d", values, trusted, ours, got, want)
		}
	})
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
			cfg := wardenhttp.Config{Timeout: timeout, Trusted: func(*http.Request) bool {
				return trusted
			}, Task: func(*http.Request) warden.Task {
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

// Two rejections for the same reason, by the same decision, are answered alike to the byte, with the table's status and
// Retry-After, whatever else is behind them; and nothing of that is in the answer.
func TestPropertyTheCauseAlone(t *testing.T) {
	acme := tenant(t)
	reasons := []decision.RejectionReason{decision.PressureHigh, decision.QueueOverflow, decision.ProbabilisticShedding,
		decision.PriorityDrop, decision.DeadlineExceeded,
		decision.Canceled, decision.Closed, decision.MaxWaitExceeded}
	m := newMiddleware(t, newGuard(t, 1, 0), wardenhttp.WithRand(wardenhttp.Config{}, func() float64 { return 0 }))
	rapid.Check(t, func(rt *rapid.T) {
		why := rapid.SampledFrom(reasons).Draw(rt, "reason")
		seq := rapid.Uint64Range(1, 99_999).Draw(rt, "decision")
		estimate := time.Duration(rapid.IntRange(0, 5000).Draw(rt, "estimate")) * time.Millisecond
		status, wait := http.StatusServiceUnavailable, strconv.Itoa(max(1, int(math.Ceil(estimate.Seconds()))))
		var of *bulkhead.Compartment
		if rapid.Bool().Draw(rt, "a tenant's") {
			if of = acme; why == decision.QueueOverflow {
				status = http.StatusTooManyRequests
			}
		}
		switch why {
		case decision.DeadlineExceeded:
			status, wait = http.StatusGatewayTimeout, ""
		case decision.Canceled:
			status, wait = 499, ""
		}
		var answers []string
		for range 2 {
			inside := decision.Explanation{
				Reason: why, InFlight: rapid.IntRange(1e6, 9e6).Draw(rt, "in flight"),
				QueueLen: rapid.IntRange(1e6, 9e6).Draw(rt, "queued"),
				Waited:   time.Duration(rapid.IntRange(1e6, 9e6).Draw(rt, "waited")) * time.Hour,
				Decision: &decision.ControlDecision{Seq: seq, TargetConcurrency: rapid.IntRange(1e6, 9e6).Draw(rt, "target")},
				Task: warden.Task{
					Name:     rapid.StringMatching(`[A-Z]{12,20}`).Draw(rt, "name"),
					Priority: decision.Priority(rapid.Int8().Draw(rt, "priority")),
				},
			}
			rec := httptest.NewRecorder()
			if !m.WriteError(rec, of, &warden.Rejection{Explanation: inside, RetryAfter: estimate}) {
				rt.Fatal("H5: a refusal was not answered")
			}
			if got := rec.Header().Get("Retry-After"); rec.Code != status || got != wait {
				rt.Fatalf(
					"H5: %s of a tenant %v after %v: %d, Retry-After %q; want %d, %q",
					why, of != nil, estimate, rec.Code, got, status, wait,
				)
			}
			var answer bytes.Buffer
			fmt.Fprintln(&answer, rec.Code)
			_ = rec.Header().Write(&answer)
			answer.Write(rec.Body.Bytes())
			answers = append(answers, answer.String())
			for what, secret := range map[string]string{
				"what is in flight": strconv.Itoa(inside.InFlight), "the queue": strconv.Itoa(inside.QueueLen),
				"the target": strconv.Itoa(inside.Decision.TargetConcurrency),
				"the name":   inside.Task.Name, "the wait": inside.Waited.String(),
			} {
				if strings.Contains(answer.String(), secret) {
					rt.Fatalf("H6: %s is told: %s", what, answer.String())
				}
			}
			if !strings.Contains(answer.String(), fmt.Sprintf(`"reason":%q`, why)) ||
				!strings.Contains(answer.String(), fmt.Sprintf(`"decision":%d}`, seq)) {
				rt.Fatalf("H6: reason %s and decision %d are not told: %s", why, seq, answer.String())
			}
		}
		if answers[0] != answers[1] {
			rt.Fatalf("H5: the same cause is answered\n%s\nand\n%s", answers[0], answers[1])
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

func (w *able) FlushError() error               { return w.do("flush") }
func (w *able) EnableFullDuplex() error         { return w.do("full duplex") }
func (w *able) SetReadDeadline(time.Time) error { return w.do("read deadline") }
func (w *able) SetWriteDeadline(time.Time) error {
	return w.do("write deadline")
}

// A flushing writer is one that a handler may take for an http.Flusher.
type flushing struct{ *able }

func (w flushing) Flush() { _ = w.FlushError() }

// Whatever the original can do, a handler can have done, and whatever it cannot is refused in the same way.
func TestPropertyTheWriterKeepsItsAbilities(t *testing.T) {
	all := []string{"flush", "full duplex", "read deadline", "write deadline"}
	rapid.Check(t, func(rt *rapid.T) {
		w := &able{ResponseWriter: httptest.NewRecorder()}
		for _, what := range all {
			if rapid.Bool().Draw(rt, what) {
				w.can = append(w.can, what)
			}
		}
		asks := rapid.SliceOfN(rapid.SampledFrom(all), 1, 6).Draw(rt, "asks")
		timeout := time.Duration(rapid.IntRange(0, 1).Draw(rt, "timeout")) * time.Hour
		g := newGuard(t, 1, 0)
		h := newMiddleware(
			t, g, wardenhttp.Config{Timeout: timeout},
		).Handler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rc := http.NewResponseController(rw)
			for _, what := range asks {
				w.asked = nil
				err := map[string]func() error{
					"flush": rc.Flush, "full duplex": rc.EnableFullDuplex,
					"read deadline":  func() error { return rc.SetReadDeadline(time.Time{}) },
					"write deadline": func() error { return rc.SetWriteDeadline(time.Time{}) },
				}[what]()
				if can := slices.Contains(w.can, what); can != (err == nil) || !can && !errors.Is(err, http.ErrNotSupported) ||
					!slices.Contains(w.asked, what) {
					rt.Fatalf("H7: %s of a writer that can do %v: %v, it was asked for %v", what, w.can, err, w.asked)
				}
			}
		}))
		if rapid.Bool().Draw(rt, "Flusher") {
			h.ServeHTTP(flushing{w}, newRequest())
		} else {
			h.ServeHTTP(w, newRequest())
		}
	})
}

// Of any number of requests, those count that ended by themselves, and their callers were there; those are abandoned that their
// context ended without an answer.
func TestPropertyWhoseTimeCounts(t *testing.T) {
	ways := map[string]auditor{
		"returns": {counted: 1}, "panics": {counted: 1}, "hijacked": {},
		"too late": {abandoned: 1}, "canceled": {abandoned: 1}, "canceled and panics": {abandoned: 1},
		"a stranger waits no longer": {abandoned: 1}, "a friend waits no longer": {abandoned: 1},
		"too late, answered": {counted: 1}, "too late, failed": {abandoned: 1}, "canceled, answered": {},
		"canceled, noted": {abandoned: 1},
	}
	rapid.Check(t, func(rt *rapid.T) {
		endings := rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(ways))), 1, 12).Draw(rt, "endings")
		want := auditor{}
		for _, way := range endings {
			want.counted += ways[way].counted
			want.abandoned += ways[way].abandoned
		}
		a := new(auditor)
		synctest.Test(t, func(t *testing.T) {
			w := must(warden.New(warden.Config{Controller: a, Limiter: limiter.Config{Initial: a.Step(monitor.Sample{})}}))(t)
			m := must(wardenhttp.New(w, wardenhttp.Config{Trusted: func(r *http.Request) bool {
				return r.Header.Get("Friend") != ""
			}}))(t)
			for _, way := range endings {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				req := newRequest().WithContext(ctx)
				if strings.Contains(way, "waits") {
					req.Header.Set("Warden-Timeout", "1000")
				}
				if strings.Contains(way, "friend") {
					req.Header.Set("Friend", "1")
				}
				h := m.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					time.Sleep(time.Millisecond)
					if strings.Contains(way, "canceled") {
						cancel()
					}
					switch {
					case strings.HasPrefix(way, "too late"), strings.Contains(way, "waits"):
						<-r.Context().Done()
					case way == "hijacked":
						if c, _, err := http.NewResponseController(rw).Hijack(); err != nil || c.Close() != nil {
							panic(err)
						}
					}
					switch {
					case strings.Contains(way, "answered"):
						_, _ = io.WriteString(rw, "here")
					case strings.Contains(way, "noted"): // as a reverse proxy does for its log
						rw.WriteHeader(499)
					case strings.Contains(way, "failed"):
						rw.WriteHeader(http.StatusBadGateway)
					case strings.Contains(way, "panics"):
						panic("on purpose")
					}
				}))
				rec := httptest.NewRecorder()
				finish(func() { h.ServeHTTP(fakeWriter{rec, rec}, req) })
				cancel()
			}
			time.Sleep(time.Second)
			w.SampleIfDue()
		})
		if *a != want {
			rt.Fatalf("H9: of %v are %+v, want %+v", endings, *a, want)
		}
	})
}

// Whatever is rejected costs four allocations at most.
func TestPropertyRejectionCostsFourAllocations(t *testing.T) {
	h := rejecting(t)
	rapid.Check(t, func(rt *rapid.T) {
		r := httptest.NewRequest(rapid.SampledFrom([]string{"GET", "POST", "PUT"}).Draw(rt, "method"), "/"+
			rapid.StringMatching(`[a-z/]{0,80}`).Draw(rt, "path"), http.NoBody)
		for i := range rapid.IntRange(0, 5).Draw(rt, "headers") {
			r.Header.Set(fmt.Sprint("X-", i), rapid.StringMatching(`[a-z]{0,40}`).Draw(rt, "value"))
		}
		if rapid.Bool().Draw(rt, "a priority") {
			r.Header.Set("Warden-Priority", rapid.SampledFrom([]string{"background", "high", "12", "none"}).Draw(rt, "priority"))
		}
		w := &discarding{header: http.Header{}}
		serve := func() { h.ServeHTTP(w, r) }
		got := testing.AllocsPerRun(50, serve)
		for range 3 { // the rest of the process allocates too: what is ours is seen each time
			got = min(got, testing.AllocsPerRun(50, serve))
		}
		if got > 4 || w.status != http.StatusServiceUnavailable {
			rt.Fatalf("H10: %v allocations for a %d, want 4 at most for a 503", got, w.status)
		}
	})
}

// Requests come one after the other; those that are exempt are answered whatever the limiter does, and it never hears of them.
func TestPropertyExemptAsksNobody(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slots := rapid.IntRange(0, 1).Draw(rt, "slots")
		paths := rapid.SliceOfN(rapid.SampledFrom([]string{"/healthz", "/other"}), 1, 20).Draw(rt, "paths")
		g := newGuard(t, slots, 0)
		h := newMiddleware(t, g, wardenhttp.Config{Exempt: func(r *http.Request) bool {
			return r.URL.Path == "/healthz"
		}}).Handler(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		asked := 0
		for _, path := range paths {
			want := http.StatusNoContent
			if path == "/other" {
				if asked++; slots == 0 {
					want = http.StatusServiceUnavailable
				}
			}
			rec := httptest.NewRecorder()
			if h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, http.NoBody)); rec.Code != want {
				rt.Fatalf("H11: %s: %d, want %d", path, rec.Code, want)
			}
			if started, rejected, _, _ := g.counts(); started+rejected != asked {
				rt.Fatalf("H11: %d were asked for, the limiter heard of %d", asked, started+rejected)
			}
		}
	})
}

// A patient writer notes until when its server would wait for the rest of a body.
type patient struct {
	http.ResponseWriter
	until time.Time
}

func (w *patient) SetReadDeadline(t time.Time) error { w.until = t; return nil }

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
			h := newMiddleware(
				t, newGuard(t, slots, 0), wardenhttp.Config{Grace: grace},
			).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadFull(r.Body, make([]byte, read))
				time.Sleep(works)
			}))
			w := &patient{ResponseWriter: httptest.NewRecorder()}
			r := httptest.NewRequest(http.MethodPost, "/", io.LimitReader(strings.NewReader(strings.Repeat("x", 1000)), 1000))
			r.ContentLength = length
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
		if left < 0 {
			rt.Fatalf("H17: rejected %v, Grace %v: nothing bounds the wait for the rest of the body", rejected, grace)
		}
	})
}

// The name of a task that is remembered lies nowhere in its request's own memory.
func TestPropertyNamesAreTheirOwn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		line := strings.Repeat(rapid.StringMatching(`[a-z]{1,20}`).Draw(rt, "piece"), rapid.IntRange(1, 50).Draw(rt, "times"))
		from, to := 0, len(line)
		if rapid.Bool().Draw(rt, "a piece") {
			from = rapid.IntRange(0, len(line)-1).Draw(rt, "from")
			to = rapid.IntRange(from+1, len(line)).Draw(rt, "to")
		}
		r := newRequest()
		cfg := wardenhttp.Config{}
		if rapid.Bool().Draw(rt, "a header") {
			r.Header.Set("Name", line)
			cfg.Task = func(r *http.Request) warden.Task { return warden.Task{Name: r.Header.Get("Name")[from:to]} }
		} else {
			line = "/" + line
			r.RequestURI, r.URL.Path = line, line[:to]
			cfg.Task = func(r *http.Request) warden.Task { return warden.Task{Name: r.URL.Path[from:]} }
		}
		if rapid.Bool().Draw(rt, "the pattern is the same") {
			if r.Pattern = line[from:to]; to-from <= 256 {
				r.Pattern = strings.Clone(r.Pattern)
			}
		}
		g := newGuard(t, 0, 0) // what it rejects it remembers
		newMiddleware(t, g, cfg).Handler(nil).ServeHTTP(httptest.NewRecorder(), r)
		name, want := g.Limiter().Recent()[0].Task.Name, line[from:min(to, from+256)]
		begin, at := uintptr(unsafe.Pointer(unsafe.StringData(line))), uintptr(unsafe.Pointer(unsafe.StringData(name)))
		if shared := at >= begin && at < begin+uintptr(len(line)); name != want || shared {
			rt.Fatalf("H18: %q, want %q, in the request's memory: %v", name, want, shared)
		}
	})
}

// Some handlers are slower than the TimeoutHandler around them waits: the first of them is told of, and no other.
func TestPropertyToldOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slow := rapid.SliceOfN(rapid.Bool(), 1, 8).Draw(rt, "slow")
		where := rapid.SampledFrom([]string{"inside", "outside", "nowhere"}).Draw(rt, "TimeoutHandler")
		inside := where == "inside"
		var logged bytes.Buffer
		var after []int // how often it had been told after each
		synctest.Test(t, func(t *testing.T) {
			m := newMiddleware(t, newGuard(t, 100, 0), wardenhttp.Config{})
			handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Slow") != "" {
					time.Sleep(time.Minute)
				}
				if where == "nowhere" { // a 503 of its own
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			switch where {
			case "inside":
				handler = m.Handler(http.TimeoutHandler(handler, time.Second, ""))
			case "outside":
				handler = http.TimeoutHandler(m.Handler(handler), time.Second, "")
			default:
				handler = m.Handler(handler)
			}
			server := &http.Server{ErrorLog: log.New(&logged, "", 0)} //nolint:gosec // it serves nothing
			for _, is := range slow {
				r := newRequest()
				if is {
					r.Header.Set("Slow", "1")
				}
				handler.ServeHTTP(
					httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server)),
				)
				after = append(after, strings.Count(logged.String(), "http.TimeoutHandler inside the middleware"))
			}
			time.Sleep(time.Hour)
		})
		told := 0
		for i, is := range slow {
			if is && inside {
				told = 1
			}
			if after[i] != told {
				rt.Fatalf("H19: %v, TimeoutHandler %s: told %d times after request %d, want %d", slow, where, after[i], i, told)
			}
		}
	})
}

// The model is a switch that Drain turns once.
func TestPropertyReadyUntilItDrains(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ops := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 40).Draw(rt, "ops")
		var ready wardenhttp.Readiness
		rejecting := newHandler(t, newGuard(t, 0, 0), nil)
		drained := false
		for _, op := range ops {
			switch {
			case op == 9:
				ready.Drain()
				drained = true
			case op > 5:
				rejecting.ServeHTTP(httptest.NewRecorder(), newRequest())
			default:
				rec := httptest.NewRecorder()
				ready.ServeHTTP(rec, newRequest())
				if want := map[bool]int{false: http.StatusOK, true: http.StatusServiceUnavailable}[drained]; rec.Code != want {
					rt.Fatalf("H20: %d, drained %v", rec.Code, drained)
				}
			}
		}
	})
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
