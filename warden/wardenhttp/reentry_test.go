// SPDX-License-Identifier: Apache-2.0

// Nobody waits for himself: a request that has its slot is not given, and not made to wait for, a second one.

package wardenhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A middleware that is met for the second time passes the request on, whatever is between; anything else is rejected at once. Nothing
// waits, and nothing is left. What else nests, packages limiter and bulkhead know and test.
func TestASecondSlot(t *testing.T) {
	type place struct {
		w   *warden.Warden
		of  func(*http.Request) *bulkhead.Compartment
		run func(ctx context.Context, f func(context.Context) error) error
	}
	newPlace := func(inCompartment bool) (place, func() int) {
		if inCompartment {
			c := compartment(t, bulkhead.CompartmentConfig{MaxQueue: 1})
			return place{nil, in(c), func(ctx context.Context, f func(context.Context) error) error {
				_, err := bulkhead.Do(ctx, c, func(ctx context.Context) (int, error) { return 0, f(ctx) })
				return err
			}}, func() int { return c.Snapshot().InFlight + c.Snapshot().Queued }
		}
		g := newGuard(t, 1, 1)
		return place{g.Warden, nil, func(ctx context.Context, f func(context.Context) error) error {
			_, err := warden.Do(ctx, g.Warden, warden.Task{}, func(ctx context.Context) (int, error) { return 0, f(ctx) })
			return err
		}}, func() int { s := g.Limiter().Stats(); return s.Running + s.Queued }
	}
	// Each enters a place on its way to what is inside.
	ways := map[string]func(p place, ctx context.Context, inside func(context.Context) error) error{
		"a middleware": func(p place, ctx context.Context, inside func(context.Context) error) (err error) {
			recorded(handle(t, p.w, wardenhttp.Config{Compartment: p.of}, func(_ http.ResponseWriter, r *http.Request) {
				err = inside(r.Context())
			}), newRequest().WithContext(ctx))
			return err
		},
		"a transport": func(p place, ctx context.Context, inside func(context.Context) error) error {
			cfg := wardenhttp.TransportConfig{Compartment: p.of, Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				return respond(http.StatusOK, http.NoBody), inside(r.Context())
			})}
			return take(must(wardenhttp.NewTransport(p.w, cfg))(t), newRequest().WithContext(ctx))
		},
		"a function": func(p place, ctx context.Context, inside func(context.Context) error) error {
			return p.run(ctx, inside)
		},
	}
	for _, inCompartment := range []bool{false, true} {
		for first, enter := range ways {
			for second, again := range ways {
				here, held := newPlace(inCompartment)
				there, _ := newPlace(!inCompartment)
				reached := false
				err := enter(here, t.Context(), func(ctx context.Context) error {
					return ways["a middleware"](there, ctx, func(ctx context.Context) error {
						return again(here, ctx, func(context.Context) error { reached = true; return nil })
					})
				})
				passes := second == "a middleware"
				var reentry *decision.ReentryError
				if reached != passes || errors.As(err, &reentry) == passes || errors.Is(err, decision.ErrReentry) == passes {
					t.Errorf("H13: %s in %s, compartment %t: reached %t, %v", second, first, inCompartment, reached, err)
				}
				if rec := httptest.NewRecorder(); !passes && (!wardenhttp.WriteError(rec, nil, err) || rec.Code != http.StatusInternalServerError) {
					t.Errorf("H13: answered %d", rec.Code)
				}
				if n := held(); n > 0 {
					t.Errorf("H13: %d slots are left", n)
				}
			}
		}
	}
}
