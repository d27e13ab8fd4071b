// SPDX-License-Identifier: Apache-2.0

// Handlers that answer errors themselves with WriteError: it knows the middleware in front of them, and its request.

package wardenhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// wrapping is a ResponseWriter of a middleware of somebody else's, as most are.
type wrapping struct{ http.ResponseWriter }

func (w wrapping) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A request that has ended is answered as the middleware does; what its context did not end is the handler's own.
func TestWriteErrorAnswersTheEndOfItsRequest(t *testing.T) {
	hang := func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 0, fmt.Errorf("around it: %w", ctx.Err())
	}
	fails := func(err error) func(context.Context) (int, error) {
		return func(context.Context) (int, error) { return 0, err }
	}
	const late, gone, own = `"status":504,"reason":"timeout_running"`, `"status":499,"reason":"canceled"`, ""
	for name, c := range map[string]struct {
		timeout, patience, leaves time.Duration // of the middleware, of an untrusted client, and when it leaves; 0: none
		fn                        func(context.Context) (int, error)
		want                      string
	}{
		"its deadline":                  {time.Second, 0, 0, hang, late},
		"an untrusted client's":         {0, time.Second, 0, hang, late},
		"the client left":               {time.Minute, 0, time.Second, hang, gone},
		"the dependency's deadline":     {time.Minute, 0, 0, fails(context.DeadlineExceeded), own},
		"the dependency canceled":       {time.Minute, 0, 0, fails(context.Canceled), own},
		"nothing but the compartment's": {0, 0, 0, hang, late},
	} {
		for _, buffered := range []bool{false, true} {
			bubble(t, fmt.Sprint(name, ", buffered ", buffered), func(t *testing.T) {
				inner := compartment(t, bulkhead.CompartmentConfig{Timeout: 10 * time.Second})
				cfg := wardenhttp.Config{Timeout: c.timeout, Buffered: buffered, Instance: "shop-1"}
				h := newGuard(t, 1, 0).handle(t, cfg, func(w http.ResponseWriter, r *http.Request) {
					_, err := bulkhead.Do(r.Context(), inner, c.fn)
					if wardenhttp.WriteError(w, inner, errors.New("mine")) {
						t.Error("H16: answered an error that is of neither the module nor a context")
					}
					if ours := wardenhttp.WriteError(wrapping{w}, inner, err); ours != (c.want != own) {
						t.Errorf("H16: answered %t: %v", ours, err)
					}
				})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if c.leaves > 0 {
					time.AfterFunc(c.leaves, leave)
				}
				req := newRequest("X-Request-Id", "mine").WithContext(ctx)
				if c.patience > 0 {
					req.Header.Set("Warden-Timeout", fmt.Sprint(c.patience.Milliseconds()))
				}
				rec := recorded(h, req)
				if c.want == own {
					return
				}
				if all := rec.Body.String(); !hasAll(all, c.want, `"request_id":"mine"`, `"server_instance":"shop-1"`) {
					t.Errorf("H16: %d %s", rec.Code, all)
				}
			})
		}
	}
}

// Behind a writer that does not unwrap, and without a middleware, nothing is known of the request.
func TestWriteErrorKnowsNoRequestWithoutItsWriter(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := newGuard(t, 1, 0).handle(t, wardenhttp.Config{Exempt: always(true)}, func(w http.ResponseWriter, r *http.Request) {
		if wardenhttp.WriteError(w, nil, r.Context().Err()) {
			t.Error("H16: an exempt request has no middleware")
		}
	})
	recorded(h, newRequest().WithContext(ctx))
	h = newHandler(t, newGuard(t, 1, 0), func(w http.ResponseWriter, _ *http.Request) {
		if wardenhttp.WriteError(struct{ http.ResponseWriter }{w}, nil, context.Canceled) {
			t.Error("H16: the writer does not unwrap")
		}
	})
	recorded(h, newRequest())
}

// An answer that a handler writes has the id and the instance, whoever rejected, and no number of a decision that was not made.
func TestWriteErrorTellsIDAndInstance(t *testing.T) {
	full := compartment(t, bulkhead.CompartmentConfig{}) // under no controller
	fill(t, full, 1)
	_, _, undecided := full.Acquire(t.Context())
	its := warden.Rejection{Explanation: decision.Explanation{Reason: bulkhead.BreakerOpen, Task: warden.Task{ID: "another"}}}
	for want, err := range map[string]error{
		`"reason":"throttled","request_id":"mine","server_instance":"shop-1"}`:       retry.ErrThrottled,
		`"reason":"breaker_open","request_id":"another","server_instance":"shop-1"}`: &its,
		`"reason":"queue_overflow","request_id":"mine","server_instance":"shop-1"}`:  undecided,
	} {
		m := newMiddleware(t, newGuard(t, 1, 0), wardenhttp.Config{Instance: "shop-1"})
		for of, write := range map[string]func(http.ResponseWriter, *bulkhead.Compartment, error) bool{
			"function": wardenhttp.WriteError, "method": m.WriteError,
		} {
			rec := recorded(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if !write(w, nil, err) {
					t.Errorf("H6: %s: not ours", of)
				}
			})), newRequest("X-Request-Id", "mine"))
			if !hasAll(rec.Body.String(), want) || rec.Header().Get("Warden-Rejected") != "" {
				t.Errorf("H6: %s: %s, %v", of, rec.Body, rec.Header())
			}
		}
	}
}

func hasAll(s string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}
