// SPDX-License-Identifier: Apache-2.0

// Nobody waits for himself: a request that has its slot is not given, and not made to wait for, a second one.

package wardenhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Handlers in one another, transports and functions, in any order, under two wardens and in two compartments: each that is met
// for the second time passes the request on if it is a middleware, and rejects it otherwise. Nothing waits, and nothing is left.
func TestPropertyAnyNesting(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		set, err := bulkhead.New(bulkhead.Config{Total: 2, Compartments: []bulkhead.CompartmentConfig{
			{Name: "c", Guaranteed: 1}, {Name: "d", Guaranteed: 1}, // nobody may wait, so that nothing hangs if this fails
		}})
		if err != nil {
			rt.Fatal(err)
		}
		guards := []*guard{newGuard(t, 1, 0), newGuard(t, 1, 0)}
		steps := rapid.SliceOfN(rapid.IntRange(0, 11), 1, 8).Draw(rt, "steps")
		held, rejected, reached := map[int]bool{}, false, false
		var enter func(w http.ResponseWriter, r *http.Request, rest []int)
		enter = func(w http.ResponseWriter, r *http.Request, rest []int) {
			if len(rest) == 0 {
				reached = true
				return
			}
			who, how := rest[0]%4, rest[0]/4 // two wardens, two compartments; middleware, transport, function
			again := held[who]
			wasHeld := held[who]
			held[who] = true
			defer func() { held[who] = wasHeld }()
			onward := func(ctx context.Context) error { enter(w, r.WithContext(ctx), rest[1:]); return nil }
			var cfg wardenhttp.Config
			var tcfg wardenhttp.TransportConfig
			var wd *warden.Warden
			if who < 2 {
				wd = guards[who].Warden
			} else {
				cfg.Compartment = in(set.Compartment([]string{"c", "d"}[who-2]))
				tcfg.Compartment = cfg.Compartment
			}
			var err error
			switch {
			case how == 0:
				m := must(wardenhttp.New(wd, cfg))(rt)
				m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_ = onward(r.Context())
				})).ServeHTTP(w, r)
				return
			case how == 1:
				tcfg.Base = roundTrip(func(r *http.Request) (*http.Response, error) {
					return respond(http.StatusOK, http.NoBody), onward(r.Context())
				})
				tr, err2 := wardenhttp.NewTransport(wd, tcfg)
				if err2 != nil {
					rt.Fatal(err2)
				}
				var resp *http.Response
				if resp, err = tr.RoundTrip(newRequest().WithContext(r.Context())); err == nil {
					resp.Body.Close()
				}
			case who < 2:
				_, err = warden.Do(r.Context(), wd, warden.Task{}, func(ctx context.Context) (int, error) {
					return 0, onward(ctx)
				})
			default:
				_, err = bulkhead.Do(r.Context(), cfg.Compartment(nil), func(ctx context.Context) (int, error) {
					return 0, onward(ctx)
				})
			}
			var reentry *decision.ReentryError
			if errors.As(err, &reentry) != again || again && !errors.Is(err, decision.ErrReentry) {
				rt.Fatalf("H13: %v: %v, again %v", rest, err, again)
			}
			if again {
				rejected = true
				rec := httptest.NewRecorder()
				if !wardenhttp.WriteError(rec, nil, err) || rec.Code != http.StatusInternalServerError ||
					!strings.Contains(rec.Body.String(), `"reason":"reentry"`) {
					rt.Fatalf("H13: told %d %s", rec.Code, rec.Body)
				}
			}
		}
		enter(httptest.NewRecorder(), newRequest(), steps)
		if rejected == reached {
			rt.Fatalf("H13: %v: rejected %v, reached %v", steps, rejected, reached)
		}
		for _, g := range guards {
			if s := g.Limiter().Stats(); s.Running != 0 || s.Queued != 0 || s.Rejected+s.Canceled != 0 {
				rt.Fatalf("H13: %+v", s)
			}
		}
		if s := set.Snapshot(); s.InFlight != 0 {
			rt.Fatalf("H13: %+v", s)
		}
	})
}
