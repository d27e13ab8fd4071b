// Package testing_test shows how a service's own tests cover overload: a rejection on demand, without load and without waiting.
// docs/guides/testing.md explains the pieces.
package testing_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func hello(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// A closed gate rejects every call.
func TestRejectedByAGate(t *testing.T) {
	gate, err := admission.New(admission.Config{Name: "payments", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	gate.Close()
	err = gate.Do(func() error { return nil })
	if !errors.Is(err, admission.ErrRejected) {
		t.Fatalf("err = %v, want a rejection", err)
	}
}

// A warden whose controller always decides a concurrency limit of 0 rejects every request.
func TestRejectedByAWarden(t *testing.T) {
	w, err := warden.New(warden.Config{Controller: closed{}})
	if err != nil {
		t.Fatal(err)
	}
	w.Limiter().Apply(closed{}.Step(monitor.Sample{})) // otherwise the first request triggers a sample
	mw, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	mw.Handler(http.HandlerFunc(hello)).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" {
		t.Fatalf("%d %v, want 503 with Retry-After", answer.Code, answer.Header())
	}
}

// closed is a controller whose concurrency limit is always 0.
type closed struct{}

func (closed) Step(monitor.Sample) decision.ControlDecision {
	return decision.ControlDecision{Seq: 1, TargetConcurrency: 0, ShedProbability: 1}
}

// A bulkhead's timeout in virtual time: the test takes no real time and is exact.
func TestTimeoutInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := bulkhead.New(bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{
			{Name: "search", Guaranteed: 1, Timeout: 3 * time.Second},
		}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = bulkhead.Do(t.Context(), set.Compartment("search"), func(ctx context.Context) (string, error) {
			<-ctx.Done() // a driver that honors its context
			return "", ctx.Err()
		})
		var late *bulkhead.TimeoutError
		if !errors.As(err, &late) || time.Since(start) != 3*time.Second {
			t.Fatalf("%v after %v, want a timeout after 3s", err, time.Since(start))
		}
	})
}

// A handler of ordered records on a log and a ledger in memory: the first attempt fails and the retry succeeds, in virtual time.
func TestHandlerIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders := new(dispatch.Log)
		orders.Append("customer-1", []byte("order 1"))
		ledger, err := lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		attempts := 0
		d, err := dispatch.New(dispatch.Partition{Ledger: ledger, Source: orders}, dispatch.Config{
			DeadLetter: dispatch.Discard,
			Handler: func(context.Context, dispatch.Job) error {
				if attempts++; attempts == 1 {
					return errors.New("not yet")
				}
				stop()
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Run(ctx); err != nil || attempts != 2 {
			t.Fatalf("%d attempts, %v", attempts, err)
		}
	})
}
