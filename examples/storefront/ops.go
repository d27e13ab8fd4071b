// -serve: the shop and, on a listener of its own, the operators' server with console, metrics, plan and mode.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

const (
	shopLine      = "shop:    "        // begins the line with the shop's URL, which parent processes parse
	tokenVariable = "STOREFRONT_TOKEN" // the operators' token; as a flag it would be visible in the process list
	shortestToken = 16                 // bytes
)

// serving is the configuration of -serve.
type serving struct {
	scenario scenario
	way      string
	listen   string
	ops      string
	token    string
	traffic  bool
	seed     uint64
	fault    fault
	after    time.Duration // from the start of the shop to the fault
}

// check validates flags and variables.
func (cfg serving) check() error {
	switch host, _, err := net.SplitHostPort(cfg.ops); {
	case !slices.Contains([]string{divided, protected, told, defaults}, cfg.way):
		return &InvalidError{"-way", fmt.Sprintf("%q", cfg.way), divided + ", " + protected + ", " + told + " or " + defaults}
	case cfg.fault.control && cfg.way != protected:
		return &InvalidError{"-fault", "control=hangs", "only with -way " + protected}
	case (cfg.fault.closed || cfg.fault.critical) && cfg.way == divided:
		return &InvalidError{"-fault", "limiter=closed or priority=critical", "not with -way " + divided}
	case err != nil:
		return &InvalidError{"-ops", fmt.Sprintf("%q", cfg.ops), "host:port on loopback"}
	case host != "localhost" && !net.ParseIP(host).IsLoopback():
		return &InvalidError{"-ops", fmt.Sprintf("%q", cfg.ops), "a loopback address, because the console is not public"}
	case cfg.token != "" && len(cfg.token) < shortestToken:
		return &InvalidError{tokenVariable, fmt.Sprintf("%d bytes long", len(cfg.token)),
			fmt.Sprintf("%d bytes or more, or empty to disable /plan and /mode", shortestToken)}
	}
	return nil
}

// serve serves until ctx ends, then shuts down gracefully.
func (cfg serving) serve(ctx context.Context, stdout, stderr io.Writer) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	s, operators, log, err := cfg.open(stderr)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", cfg.ops)
	if err != nil {
		return errors.Join(err, s.close())
	}
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	ended := make(chan error, 1) // of the operators' server
	defer func() {
		cancel()
		background.Wait()
		down, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		err = errors.Join(err, operators.Shutdown(down), s.close(), log.Flush(down))
	}()
	go func() { ended <- operators.Serve(l) }()
	url := "http://" + l.Addr().String()
	fmt.Fprintf(stdout, "%s%s\nconsole: %s/console/\nmetrics: %s/metrics\n", shopLine, s.url, url, url)
	if cfg.token == "" {
		fmt.Fprintf(stdout, "plan and mode: disabled; set %s to enable them\n", tokenVariable)
	} else {
		fmt.Fprintf(stdout, "plan and mode: %s/plan, %s/mode (bearer token: %s)\n", url, url, tokenVariable)
	}
	s.deploy(fault{hold: cfg.scenario.phases[0].hold})
	if cfg.traffic {
		background.Go(func() { cfg.scenario.demand(ctx, s.url, cfg.seed) })
	}
	if cfg.fault.given != "" {
		background.Go(func() { cfg.fault.inject(ctx, s, cfg.after) })
	}
	select {
	case <-ctx.Done():
	case err = <-s.served:
		s.served <- err // for close
	case err = <-ended:
	}
	return err
}

// open opens the shop and makes the operators' server. Events of limiter and compartments go to the metrics and the log.
func (cfg serving) open(logTo io.Writer) (s *shop, operators *http.Server, log *wardenslog.Logger, err error) {
	tasks, errTasks := wardenprom.NewEvents("storefront")
	calls, errCalls := wardenprom.NewEvents("database")
	log = wardenslog.New(slog.New(slog.NewTextHandler(logTo, nil)).With("instance", instance()))
	if err := errors.Join(errTasks, errCalls); err != nil {
		return nil, nil, nil, err
	}
	s, err = cfg.scenario.open(cfg.way, cfg.listen, limiter.Observers{tasks.Limiter(), log.Limiter()},
		bulkhead.Observers{calls.Bulkhead(), log.Bulkhead()})
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	var exported wardenprom.Config
	if s.set != nil {
		exported.Sets = map[string]*bulkhead.Set{"database": s.set}
	}
	if s.warden != nil {
		exported.Wardens = map[string]*warden.Warden{"storefront": s.warden}
	}
	metrics, errMetrics := wardenprom.New(exported)
	registry := prometheus.NewRegistry()
	page, errPage := console.New(console.Config{Title: "storefront", Instance: instance(), Warden: s.warden, Set: s.set})
	if err := errors.Join(errMetrics, errPage, wardenprom.Register(registry, metrics, tasks, calls,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))); err != nil {
		return nil, nil, nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", page))
	mux.Handle("GET /{$}", http.RedirectHandler("/console/", http.StatusFound))
	mux.Handle("GET /metrics", page.Guard(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})))
	if s.set != nil {
		mux.Handle("/plan", page.Guard(withToken(cfg.token, s.showPlan, s.setPlan)))
	}
	if s.warden != nil {
		mux.Handle("/mode", page.Guard(withToken(cfg.token, s.showMode, s.setMode)))
	}
	operators = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second,
		IdleTimeout: time.Minute,
	}
	operators.RegisterOnShutdown(page.Close) // event streams do not end by themselves
	return s, operators, log, nil
}

// instance names this process in rejections, log and console. In Kubernetes, the host name is the name of the pod.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		return "storefront"
	}
	return host
}

// withToken shows (GET) or changes (POST) something for who has the operators' token; an empty token disables both.
func withToken(token string, show func() any, change func(body io.Reader) (status int, reason string, err error)) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + token)) // comparing hashes of equal length does not reveal the length of the token
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		given := sha256.Sum256([]byte(req.Header.Get("Authorization")))
		switch {
		case token == "":
			problem(w, http.StatusForbidden, "disabled", tokenVariable, " is not set")
			return
		case subtle.ConstantTimeCompare(given[:], want[:]) != 1:
			w.Header().Set("WWW-Authenticate", `Bearer realm="storefront"`)
			problem(w, http.StatusUnauthorized, "unauthorized")
			return
		case req.Method == http.MethodPost:
			if status, reason, err := change(http.MaxBytesReader(w, req.Body, 64<<10)); err != nil {
				problem(w, status, reason, err)
				return
			}
		case req.Method != http.MethodGet:
			w.Header().Set("Allow", "GET, POST")
			problem(w, http.StatusMethodNotAllowed, "method_not_allowed")
			return
		}
		answer(w, show(), nil)
	})
}

func (s *shop) showMode() any {
	return map[string]decision.Mode{"mode": s.warden.Limiter().Stats().Mode}
}

func (s *shop) setMode(body io.Reader) (status int, reason string, err error) {
	var given struct{ Mode *decision.Mode }
	if err = decode(body, &given); err == nil && given.Mode == nil {
		err = errors.New("mode is required: enforce, dry_run or bypass")
	}
	if err == nil {
		err = s.warden.Limiter().SetMode(*given.Mode)
	}
	return http.StatusBadRequest, "unreadable", err
}

func (s *shop) showPlan() any { return s.set.Plan() }

// setPlan requires every field: one that is misspelled or left out must not become 0.
func (s *shop) setPlan(body io.Reader) (status int, reason string, err error) {
	text, err := io.ReadAll(body)
	var plan bulkhead.Plan
	if err == nil {
		err = decode(bytes.NewReader(text), &plan)
	}
	if err == nil {
		err = whole(text, plan)
	}
	if err != nil {
		return http.StatusBadRequest, "unreadable", err
	}
	plan.By = "admin API"
	if err = s.apply(plan); errors.Is(err, bulkhead.ErrConflict) {
		return http.StatusConflict, "stale_revision", err
	}
	return http.StatusBadRequest, "invalid_plan", err
}

// whole compares a text with what was read from it, which has every field.
func whole(text []byte, read any) error {
	all, err := json.Marshal(read)
	var given, want any
	if err = errors.Join(err, json.Unmarshal(text, &given), json.Unmarshal(all, &want)); err == nil && !reflect.DeepEqual(given, want) {
		err = fmt.Errorf("every field is required, as in %s", all)
	}
	return err
}

// decode reads exactly one JSON value without unknown fields.
func decode(r io.Reader, into any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // More would accept a trailing bracket
		return errors.New("more than one JSON value")
	}
	return nil
}
