// What operators get, on a listener of its own: the console, the metrics, and a plan and a mode that they may change with a token.
package main

import (
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

// tokenVariable holds the operators' token. It is no flag: whoever lists processes would see it.
const tokenVariable = "STOREFRONT_TOKEN"

const shortestToken = 16

// observers are told what happens: by the limiter and the compartments, for metrics and for the log.
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

// instance is the name of this process: in Kubernetes, the host's name is the pod's. What a client is told of a rejection, the log and the
// console have it, so that one of many processes is found.
func instance() string {
	host, err := os.Hostname()
	if err != nil {
		return "storefront"
	}
	return host
}

func (o observers) limiter() limiter.Observer { return limiter.Observers{o.tasks, o.log.Limiter()} }
func (o observers) set() bulkhead.Observer    { return bulkhead.Observers{o.calls, o.log.Bulkhead()} }

// ops serves operators.
type ops struct {
	url    string
	http   *http.Server
	served chan error
}

// newOps begins to serve on l, about a shop that has compartments.
func newOps(l net.Listener, s *shop, o observers, token string) (*ops, error) {
	page, err := console.New(console.Config{Title: "storefront", Instance: instance(), Warden: s.warden, Set: s.set})
	if err != nil {
		return nil, err
	}
	shown := wardenprom.Config{Sets: map[string]*bulkhead.Set{"database": s.set}}
	if s.warden != nil {
		shown.Wardens = map[string]*warden.Warden{"storefront": s.warden}
	}
	metrics, err := wardenprom.New(shown)
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
	srv.RegisterOnShutdown(page.Close) // its streams never end by themselves
	p := &ops{"http://" + l.Addr().String(), srv, make(chan error, 1)}
	go func() { p.served <- srv.Serve(l) }()
	return p, nil
}

// tokenHandler hands on what comes with the token.
type tokenHandler struct {
	next    http.Handler
	token   [sha256.Size]byte // its hash: hashes are of one length, so that comparing them tells nothing of the token's
	enabled bool
}

func (h tokenHandler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if !h.enabled {
		problem(w, http.StatusForbidden, "disabled", tokenVariable, " was not set when the storefront was started")
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

// modeHandler shows whether the limiter enforces what it decides (GET), and switches it while everything runs (POST).
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

// planHandler shows how the connections are shared (GET) and shares them anew while everything runs (POST).
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

// readPlan reads one plan and nothing else. A field that is not there or not known is an error: who mistypes guaranteed must
// not be given 0.
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

// readOne reads one JSON value and nothing else.
func readOne(r io.Reader, into any) error {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) { // More says no before a closing bracket
		return errors.New("more than one JSON value")
	}
	return nil
}
