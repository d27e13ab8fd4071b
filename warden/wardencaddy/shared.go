// SPDX-License-Identifier: Apache-2.0

// What outlives a configuration: wardens by name, each used by the handlers of one configuration, and during a reload of two.

package wardencaddy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

// pool has a *shared for each warden in use. Its keys are what cannot change in a warden: see fixed.
//
//nolint:gochecknoglobals // it outlives each configuration
var pool = caddy.NewUsagePool()

// shared is a running warden.
type shared struct {
	parts
	events  *wardenprom.Events
	log     *wardenslog.Logger
	out     *output
	stop    context.CancelFunc
	stopped chan struct{} // closed when the warden's Run has returned

	mu       sync.Mutex  // guards all below, and the order of changes of the warden
	settings []*settings // of the configurations that use it, the latest at the end: it is in force
}

// settings are what a configuration may change in a running warden.
type settings struct {
	text   string // two that are equal have the same one
	bounds warden.Bounds
	mode   decision.Mode
	plan   bulkhead.Plan
	logger *slog.Logger
}

// fixed is what a warden keeps for its life: its name, and names, priorities and tenants of its compartments.
func (h *Handler) fixed() string {
	var key strings.Builder
	fmt.Fprintf(&key, "%q", h.Name)
	for _, c := range h.Compartments {
		fmt.Fprintf(&key, " %q %s %d", c.Name, c.Priority, c.TenantMax)
	}
	return key.String()
}

// settings returns those of h, whose fields have been checked.
func (h *Handler) settings(logger *slog.Logger) (*settings, error) {
	s := &settings{logger: logger}
	if h.Mode != "" {
		if err := s.mode.UnmarshalText([]byte(h.Mode)); err != nil {
			return nil, err
		}
	}
	like, err := h.build(s.mode, nil, nil) // it knows the defaults
	if err != nil {
		return nil, err
	}
	s.bounds, _, _ = like.warden.Bounds()
	s.plan = like.set.Plan()
	text, err := json.Marshal([]any{h.fixed(), s.bounds, s.mode, s.plan, h.Initial})
	s.text = string(text)
	return s, err
}

// start makes and starts the warden of h.
func start(h *Handler, first *settings) (*shared, error) {
	s := &shared{out: new(output), stopped: make(chan struct{})}
	s.log = wardenslog.New(slog.New(s.out))
	var err error
	if s.events, err = wardenprom.NewEvents(h.Name); err != nil {
		return nil, err
	}
	s.parts, err = h.build(first.mode, limiter.Observers{s.events.Limiter(), s.log.Limiter()},
		bulkhead.Observers{s.events.Bulkhead(), s.log.Bulkhead()})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() {
		defer close(s.stopped)
		_ = s.warden.Run(ctx) // it fails only if another Run is active
	}()
	return s, nil
}

// Destruct ends the warden's Run when no configuration uses it any more. Its limiter stays open: requests of the last one may
// still wait for it.
func (s *shared) Destruct() error {
	s.stop()
	<-s.stopped
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.log.Flush(ctx) // a handler of logs that hangs loses lines
	return nil
}

// use puts settings in force.
func (s *shared) use(next *settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := len(s.settings); {
	case n > 0:
		if err := s.changeLocked(s.settings[n-1], next); err != nil {
			return err
		}
	case next.mode != decision.Enforce: // of those that it was made with, no change tells
		next.logger.Warn("stopbank: not enforcing", "limiter", s.warden.Name(), "mode", next.mode.String())
	}
	s.settings = append(s.settings, next)
	s.out.to.Store(next.logger)
	return nil
}

// drop ends a use. If the last settings go first, their configuration has failed, and those before them are in force again.
func (s *shared) drop(old *settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.settings, old)
	if i < 0 {
		return nil // they have never been in force
	}
	last := i == len(s.settings)-1
	s.settings = slices.Delete(s.settings, i, i+1)
	if !last || len(s.settings) == 0 {
		return nil
	}
	next := s.settings[len(s.settings)-1]
	s.out.to.Store(next.logger)
	return s.changeLocked(old, next)
}

// changeLocked changes the running warden.
func (s *shared) changeLocked(from, to *settings) error {
	if from.text == to.text {
		return nil
	}
	const by = "Caddy's configuration"
	if s.set != nil { // first: the warden's Max is never less than the set's total
		plan := to.plan
		plan.Revision, plan.By = s.set.Plan().Revision, by
		if _, err := s.set.Resize(plan); err != nil {
			return err
		}
	}
	err := s.warden.Adjust(by, func(b *warden.Bounds) { b.Min, b.Max, b.MaxQueue = to.bounds.Min, to.bounds.Max, to.bounds.MaxQueue })
	return errors.Join(err, s.warden.Limiter().SetMode(to.mode))
}
