// The operators' server, on its own listener: the console, the metrics and, with a token, the plan and the mode.
package main

import (
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
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

// tokenVariable has the operators' token, which would be visible in the process list as a flag.
const tokenVariable = "STOREFRONT_TOKEN"

const shortestToken = 16

// observers pass events of the limiter and of the compartments to the metrics and the log.
type observers struct {
	tasks *wardenprom.LimiterTimes
	calls *wardenprom.CompartmentTimes
	log   *wardenslog.Logger
}

func newObservers(log io.Writer) (o observers, err error) {
	if o.tasks, err = wardenprom.NewLimiterTimes(wardenprom.TimesConfig{Name: "storefront"}); err != nil {
		return o, err
	}
	if o.calls, err = wardenprom.NewCompartmentTimes(wardenprom.TimesConfig{Name: "database"}); err != nil {
		return o, err
	}
	lines := slog.New(slog.NewTextHandler(log, nil)).With("instance", instance())
	o.log, err = wardenslog.New(wardenslog.Config{Logger: lines})
	return o, err
}

// instance names this process in rejections, log and console. In Kubernetes, the host name is the name of the pod.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		return "storefront"
	}
	return host
}

func (o observers) limiter() limiter.Observer { return limiter.Observers{o.tasks, o.log.Limiter()} }
func (o observers) set() bulkhead.Observer    { return bulkhead.Observers{o.calls, o.log.Bulkhead()} }

// ops is the operators' server.
type ops struct {
	url    string
	http   *http.Server
	served chan error
}

// newOps starts the operators' server of a shop with compartments on l.
func newOps(l net.Listener, s *shop, o observers, token string) (*ops, error) {
	page, err := console.New(console.Config{Title: "storefront", Instance: instance(), Warden: s.warden, Set: s.set})
	if err != nil {
		return nil, err
	}
	exported := wardenprom.Config{Sets: map[string]*bulkhead.Set{"database": s.set}}
	if s.warden != nil {
		exported.Wardens = map[string]*warden.Warden{"storefront": s.warden}
	}
	metrics, err := wardenprom.New(exported)
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	if err := wardenprom.Register(registry, metrics, o.tasks, o.calls); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", page))
	mux.Handle("GET /metrics", page.Guard(promhttp.HandlerFor(registry, promhttp.HandlerOpts{})))
	withToken := func(next http.Handler) http.Handler {
		return page.Guard(tokenHandler{next, sha256.Sum256([]byte(token)), token != ""})
	}
	mux.Handle("/plan", withToken(planHandler{s.way.(*compartments)}))
	if s.warden != nil {
		mux.Handle("/mode", withToken(modeHandler{s.warden.Limiter()}))
	}
	mux.Handle("GET /{$}", http.RedirectHandler("/console/", http.StatusFound))
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute,
	}
	srv.RegisterOnShutdown(page.Close) // event streams do not end by themselves
	p := &ops{"http://" + l.Addr().String(), srv, make(chan error, 1)}
	go func() { p.served <- srv.Serve(l) }()
	return p, nil
}

func (p *ops) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := p.http.Shutdown(ctx)
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// tokenHandler requires the operators' token.
type tokenHandler struct {
	next    http.Handler
	token   [sha256.Size]byte // a hash: comparing hashes of equal length does not reveal the length of the token
	enabled bool
}

func (h tokenHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if !h.enabled {
		problem(w, http.StatusForbidden, "disabled", tokenVariable, " is not set")
		return
	}
	given, isBearer := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	hash := sha256.Sum256([]byte(given))
	if subtle.ConstantTimeCompare(hash[:], h.token[:]) != 1 || !isBearer {
		w.Header().Set("WWW-Authenticate", `Bearer realm="storefront"`)
		problem(w, http.StatusUnauthorized, "unauthorized")
		return
	}
	h.next.ServeHTTP(w, req)
}

// modeHandler shows the mode of the limiter (GET) and changes it (POST).
type modeHandler struct{ limiter *limiter.Limiter }

func (h modeHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var given struct {
		Mode *limiter.Mode `json:"mode"`
	}
	switch req.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		err := readOne(http.MaxBytesReader(w, req.Body, 1<<10), &given)
		switch {
		case err == nil && given.Mode != nil:
			err = h.limiter.SetMode(*given.Mode)
		case err == nil:
			err = errors.New("mode is required: enforce, dry_run or bypass")
		}
		if err != nil {
			problem(w, http.StatusBadRequest, "unreadable", err)
			return
		}
	default:
		notAllowed(w)
		return
	}
	now := h.limiter.Mode()
	given.Mode = &now
	answer(w, given, nil)
}

func notAllowed(w http.ResponseWriter) {
	w.Header().Set("Allow", "GET, HEAD, POST")
	problem(w, http.StatusMethodNotAllowed, "method_not_allowed")
}

// planHandler shows the plan of the compartments (GET) and changes it (POST).
type planHandler struct{ way *compartments }

func (h planHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch req.Method {
	case http.MethodGet, http.MethodHead:
		answer(w, h.way.set.Plan(), nil)
	case http.MethodPost:
		h.resize(w, req)
	default:
		notAllowed(w)
	}
}

func (h planHandler) resize(w http.ResponseWriter, req *http.Request) {
	next, err := readPlan(http.MaxBytesReader(w, req.Body, 64<<10))
	if err != nil {
		problem(w, http.StatusBadRequest, "unreadable", err)
		return
	}
	_, err = h.way.resize(next)
	switch {
	case err == nil:
		answer(w, h.way.set.Plan(), nil)
	case errors.Is(err, bulkhead.ErrConflict):
		problem(w, http.StatusConflict, "stale_revision", err)
	default:
		problem(w, http.StatusBadRequest, "invalid_plan", err)
	}
}

// readPlan reads exactly one plan. Missing and unknown fields are errors: a misspelled "guaranteed" must not become 0.
func readPlan(r io.Reader) (plan bulkhead.Plan, err error) {
	var given struct {
		Revision     *uint64
		Total        *int
		Compartments []struct {
			Name                      *string
			Guaranteed, Lendable, Max *int
			Mode                      *limiter.Mode
		}
	}
	if err := readOne(r, &given); err != nil {
		return plan, err
	}
	if given.Revision == nil || given.Total == nil {
		return plan, errors.New("revision and total are required")
	}
	plan.Revision, plan.Total = *given.Revision, *given.Total
	for i, c := range given.Compartments {
		if c.Name == nil || c.Guaranteed == nil || c.Lendable == nil || c.Max == nil || c.Mode == nil {
			return plan, fmt.Errorf("compartments[%d]: name, guaranteed, lendable, max and mode are required", i)
		}
		plan.Compartments = append(plan.Compartments, bulkhead.Share{Name: *c.Name, Guaranteed: *c.Guaranteed, Lendable: *c.Lendable, Max: *c.Max, Mode: *c.Mode})
	}
	return plan, nil
}

// readOne reads exactly one JSON value.
func readOne(r io.Reader, into any) error {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) { // More would accept a trailing bracket
		return errors.New("more than one JSON value")
	}
	return nil
}
