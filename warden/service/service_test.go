// SPDX-License-Identifier: Apache-2.0

// Services on loopback: their parts know each other under one name, and they stop in the documented order.

package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/service"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a test that hangs; no test depends on its value.
const patience = time.Minute

// one is a controller that allows one task at a time.
type one struct{}

func (one) Step(monitor.Sample) decision.ControlDecision {
	return decision.ControlDecision{Seq: 1, TargetConcurrency: 1}
}

// lines is where a logger writes.
type lines struct {
	mu  sync.Mutex // guards all
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// A running service with a handler that says when it has begun, and answers when it may.
type running struct {
	*service.Service
	t          *testing.T
	server     *http.Server
	url, pages string
	begun, may chan struct{}
	log        *lines
	stop       context.CancelFunc
	ended      chan error
}

// made makes a service.
func made(t *testing.T, cfg service.Config) *service.Service {
	t.Helper()
	s, err := service.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t *testing.T, cfg service.Config) *running {
	t.Helper()
	x := &running{t: t, begun: make(chan struct{}, 100), may: make(chan struct{}), log: new(lines), ended: make(chan error, 1)}
	cfg.Name, cfg.Instance, cfg.OperatorsAddr = "shop", "shop-1", "127.0.0.1:0"
	cfg.Logger = slog.New(slog.NewJSONHandler(x.log, nil))
	cfg.Warden.Controller = one{}
	cfg.Warden.Limiter.Initial = one{}.Step(monitor.Sample{})
	x.Service = made(t, cfg)
	mux := http.NewServeMux()
	mux.Handle("GET /work", x.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		x.begun <- struct{}{}
		<-x.may
		_, _ = io.WriteString(w, "done")
	})))
	mux.Handle("GET /readyz", x.Ready)
	addr := make(chan string, 1)
	x.server = &http.Server{Addr: "127.0.0.1:0", Handler: mux, ReadHeaderTimeout: patience}
	x.server.BaseContext = func(l net.Listener) context.Context {
		addr <- l.Addr().String()
		return context.Background()
	}
	ctx, cancel := context.WithCancel(t.Context())
	x.stop = cancel
	go func() { x.ended <- x.Run(ctx, x.server) }()
	x.url = "http://" + <-addr
	x.await(func() bool { return strings.Contains(x.log.String(), "stopbank: serving") })
	var line struct{ Addr, Operators string }
	if err := json.NewDecoder(strings.NewReader(x.log.String())).Decode(&line); err != nil || "http://"+line.Addr != x.url {
		t.Fatalf("%+v, %v", line, err)
	}
	x.pages = "http://" + line.Operators
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return x
}

// await waits for what another goroutine is about to do, and announces to nobody.
func (x *running) await(done func() bool) {
	x.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			x.t.Fatal("it does not happen")
		}
	}
}

// get sends a request on a connection of its own, as a new client does.
func (x *running) get(url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}

func ready(s *service.Service) int {
	rec := httptest.NewRecorder()
	s.Ready.ServeHTTP(rec, nil)
	return rec.Code
}

// end ends the service, which has no error.
func (x *running) end() {
	x.t.Helper()
	x.stop()
	if err := <-x.ended; err != nil {
		x.t.Error(err)
	}
}

// A request that runs and one that is queued are answered although the service has begun to stop; then its limiter is closed, its
// pages have ended, and every line is written.
func TestStopsInOrder(t *testing.T) {
	x := run(t, service.Config{Spread: time.Millisecond})
	answers := make(chan int, 2)
	for range 2 {
		go func() {
			status, _, err := x.get(x.url + "/work")
			if err != nil {
				t.Error(err)
			}
			answers <- status
		}()
	}
	<-x.begun
	x.await(func() bool { return x.Warden.Limiter().Stats().Queued == 1 })
	pages, err := http.Get(x.pages + "/console/events") // a stream without an end
	if err != nil {
		t.Fatal(err)
	}
	x.stop()
	x.await(func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(x.url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if ready(x.Service) != http.StatusServiceUnavailable {
		t.Error("its listener is closed while it is ready")
	}
	select {
	case err := <-x.ended:
		t.Fatalf("it has ended before its requests: %v", err)
	default:
	}
	if _, err := io.CopyN(io.Discard, pages.Body, 1); err != nil {
		t.Errorf("operators see nothing of the shutdown: %v", err)
	}
	close(x.may)
	for range 2 {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("a request was answered %d", status)
		}
	}
	if err := <-x.ended; err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, pages.Body); err != nil {
		t.Errorf("the operators' page was cut off: %v", err)
	}
	_ = pages.Body.Close()
	if log := x.log.String(); !strings.Contains(log, "stopbank: draining") || strings.Contains(log, "rejecting") {
		t.Errorf("log %s", log)
	}
	if _, err := x.Warden.TryAcquire(warden.Task{}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after the end: %v", err)
	}
	if err := x.Run(t.Context(), x.server); !errors.Is(err, warden.ErrInvalid) {
		t.Errorf("a second Run: %v", err)
	}
}

// A handler that does not end is cut off, and the error says so.
func TestCutsOff(t *testing.T) {
	x := run(t, service.Config{Spread: time.Millisecond, ShutdownTimeout: time.Millisecond})
	cut := make(chan error, 1)
	go func() { _, _, err := x.get(x.url + "/work"); cut <- err }()
	<-x.begun
	x.stop()
	if err := <-x.ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want that the time was over", err)
	}
	if err := <-cut; err == nil {
		t.Error("the client got an answer")
	}
	close(x.may)
}

// One name is in the limiter's rejections, on the console and in the client's answer; the operators' server shows the console, and
// there the Timeout that the configuration sets.
func TestOneName(t *testing.T) {
	x := run(t, service.Config{Spread: time.Millisecond, HTTP: wardenhttp.Config{Verbose: true, Timeout: patience}})
	x.Warden.Limiter().Close()
	_, body, err := x.get(x.url + "/work")
	if err != nil || !strings.Contains(body, `"server_instance":"shop-1"`) || !strings.Contains(body, `\"shop\"`) {
		t.Errorf("%s, %v", body, err)
	}
	_, body, err = x.get(x.pages + "/console/state.json")
	var state struct{ Title, Instance string }
	err = errors.Join(err, json.Unmarshal([]byte(body), &state))
	if err != nil || state.Title != "shop" || state.Instance != "shop-1" || !strings.Contains(body, `"timeout_ms":60000`) {
		t.Errorf("%+v, %v: %s", state, err, body)
	}
	x.end()
	for line := range strings.Lines(x.log.String()) {
		if !strings.Contains(line, `"instance":"shop-1"`) {
			t.Errorf("a line without the instance: %s", line)
		}
	}
	if !strings.Contains(x.log.String(), `"limiter":"shop"`) {
		t.Errorf("the rejection is not in the log: %s", x.log.String())
	}
}

// A request is in the compartment that the function chooses, and every observer hears of it.
func TestCompartments(t *testing.T) {
	heard := make(chan string, 10)
	x := run(t, service.Config{
		Spread:  time.Millisecond,
		Metrics: watching(func(bulkhead.Event) { heard <- "metrics" }).watch,
		Bulkhead: bulkhead.Config{
			Total: 2, Compartments: []bulkhead.CompartmentConfig{{Name: "a", Guaranteed: 1}, {Name: "b", Guaranteed: 1}},
			Observer: observing(func(e bulkhead.Event) {
				if e.Kind == bulkhead.Answered {
					heard <- "program"
				}
			}),
		},
		Compartment: func(set *bulkhead.Set, r *http.Request) *bulkhead.Compartment {
			return set.Compartment(r.FormValue("in"))
		},
	})
	close(x.may)
	for in, want := range map[string]int{"a": 200, "b": 200, "c": 500} {
		if status, _, err := x.get(x.url + "/work?in=" + in); status != want || err != nil {
			t.Errorf("in %s: %d, %v", in, status, err)
		}
	}
	x.end()
	if got := [4]string{<-heard, <-heard, <-heard, <-heard}; got != [4]string{"program", "metrics", "program", "metrics"} {
		t.Errorf("heard %q", got)
	}
	for _, c := range x.Set.Snapshot().Compartments {
		if c.Submitted != 1 {
			t.Errorf("%s: %d calls", c.Name, c.Submitted)
		}
	}
}

type observing func(bulkhead.Event)

func (o observing) Observe(e bulkhead.Event) { o(e) }

// watching has a Metrics with one observer, of calls that were answered.
type watching func(bulkhead.Event)

func (w watching) watch(name string) (limiter.Observer, bulkhead.Observer, func(*warden.Warden, *bulkhead.Set) error, error) {
	if name == "refused" {
		return nil, nil, nil, errRefused
	}
	answered := observing(func(e bulkhead.Event) {
		if e.Kind == bulkhead.Answered {
			w(e)
		}
	})
	export := func(*warden.Warden, *bulkhead.Set) error {
		if name == "refused later" {
			return errRefused
		}
		return nil
	}
	return nil, answered, export, nil
}

var errRefused = errors.New("refused")

func TestListenersThatFail(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, addr := range [][2]string{{taken.Addr().String(), "127.0.0.1:0"}, {"127.0.0.1:0", taken.Addr().String()}} {
		s := made(t, service.Config{Name: "shop", OperatorsAddr: addr[1]})
		err := s.Run(t.Context(), &http.Server{Addr: addr[0], ReadHeaderTimeout: patience})
		const named = "service: Config.OperatorsAddr: listen tcp"
		if err == nil || strings.HasPrefix(err.Error(), named) != (addr[1] == taken.Addr().String()) {
			t.Errorf("%v: %v", addr, err)
		}
	}
}

func TestBadInput(t *testing.T) {
	compartments := []bulkhead.CompartmentConfig{{Name: "a", Guaranteed: 1}}
	choose := func(*bulkhead.Set, *http.Request) *bulkhead.Compartment { return nil }
	chosen := func(*http.Request) *bulkhead.Compartment { return nil }
	divided := bulkhead.Config{Total: 1, Compartments: compartments}
	for field, cfg := range map[string]service.Config{
		"Config.Name":                    {},
		"Config.Spread":                  {Spread: -1},
		"Config.ShutdownTimeout":         {ShutdownTimeout: -1},
		"Config.Warden.Limiter.Name":     {Warden: warden.Config{Limiter: limiter.Config{Name: "x"}}},
		"Config.Warden.Limiter.Observer": {Warden: warden.Config{Limiter: limiter.Config{Observer: (*tally)(nil)}}},
		"Config.Bulkhead.Observer":       {Bulkhead: bulkhead.Config{Observer: observing(nil)}},
		"Config.HTTP.Instance":           {HTTP: wardenhttp.Config{Instance: "x"}},
		"Config.HTTP.Compartment":        {HTTP: wardenhttp.Config{Compartment: chosen}},
		"Config.Console":                 {Console: console.Config{Title: "x"}},
		"Config.Warden.ApplyTo":          {Warden: warden.Config{ApplyTo: new(bulkhead.Set)}, Bulkhead: divided},
		"Config.Bulkhead.Compartments":   {Compartment: choose},
		"wardenhttp.Config.Timeout":      {HTTP: wardenhttp.Config{Timeout: -1}},
	} {
		if field != "Config.Name" {
			cfg.Name = "shop"
		}
		_, err := service.New(cfg)
		var invalid *warden.InvalidError
		if !errors.As(err, &invalid) || !strings.HasSuffix(invalid.Field, field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, name := range []string{"refused", "refused later"} {
		s, err := service.New(service.Config{Name: name, Metrics: watching(func(bulkhead.Event) {}).watch})
		if s != nil || !errors.Is(err, errRefused) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	divided.Total = -1
	if _, err := service.New(service.Config{Name: "shop", Bulkhead: divided}); !errors.Is(err, decision.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

type tally struct{}

func (*tally) Observe(limiter.Event) {}

func TestZero(t *testing.T) {
	good, none, zero := made(t, service.Config{Name: "shop"}), (*service.Service)(nil), new(service.Service)
	none.Drain()
	zero.Drain()
	if err := errors.Join(none.Stop(t.Context()), zero.Stop(t.Context())); err != nil {
		t.Error(err)
	}
	for _, err := range []error{
		none.Start(), none.Run(t.Context(), new(http.Server)), zero.Run(t.Context(), new(http.Server)),
		good.Run(nil, new(http.Server)), good.Run(t.Context(), nil), //nolint:staticcheck // a nil context
	} {
		if !errors.Is(err, warden.ErrInvalid) {
			t.Error(err)
		}
	}
	for _, s := range []*service.Service{none, zero} {
		rec := httptest.NewRecorder()
		s.Handler(http.NotFoundHandler()).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		if rec.Code != http.StatusInternalServerError {
			t.Errorf("a zero service answers %d", rec.Code)
		}
	}
}

// A program with a server of its own starts and stops what is the service's, in any order and with nonsense, and leaves nothing behind.
func TestAServerOfItsOwn(t *testing.T) {
	logged := new(lines)
	s := made(t, service.Config{Name: "shop", OperatorsAddr: "127.0.0.1:0", Logger: slog.New(slog.NewJSONHandler(logged, nil))})
	err := s.Stop(t.Context())
	if err != nil {
		t.Errorf("not started: %v", err)
	}
	if err = s.Start(); err != nil {
		t.Fatal(err)
	}
	var line struct{ Msg, Addr, Operators string }
	if err = json.NewDecoder(strings.NewReader(logged.String())).Decode(&line); err != nil || line.Msg != "stopbank: serving" || line.Addr != "" {
		t.Errorf("%+v, %v", line, err)
	}
	get := func() (int, error) {
		resp, err := http.Get("http://" + line.Operators + "/console/")
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	if status, err := get(); status != http.StatusOK {
		t.Errorf("the console: %d, %v", status, err)
	}
	var invalid *warden.InvalidError
	if err = s.Start(); !errors.As(err, &invalid) {
		t.Errorf("started twice: %v", err)
	}
	if err = s.Run(t.Context(), &http.Server{Addr: "127.0.0.1:0"}); !errors.As(err, &invalid) {
		t.Errorf("started, then Run: %v", err)
	}
	s.Drain()
	if code := ready(s); code != http.StatusServiceUnavailable || s.Warden.Limiter().Stats().Submitted != 0 {
		t.Errorf("ready: %d", code)
	}
	http.DefaultClient.CloseIdleConnections()
	for range 2 {
		if err = s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err = get(); err == nil {
		t.Error("operators are served after Stop")
	}
	if _, err = s.Warden.TryAcquire(warden.Task{}); err == nil {
		t.Error("a task starts after Stop")
	}
}
