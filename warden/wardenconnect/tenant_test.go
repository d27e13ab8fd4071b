// SPDX-License-Identifier: Apache-2.0

// What a rejected call teaches the throttle of a client's transport: Connect answers overload and a tenant's quota with the same
// 429.

package wardenconnect_test

import (
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenconnect"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestOverloadTeachesATenantDoesNot(t *testing.T) {
	queues := bulkhead.CompartmentConfig{MaxQueue: 1, MaxWait: time.Millisecond}
	tenants := queues
	tenants.Tenants.Max = 1
	failed, not := retry.Stats{Calls: 1, Failed: 1}, retry.Stats{Calls: 1}
	for name, c := range map[string]struct {
		cfg     bulkhead.CompartmentConfig
		holders []string
		code    connect.Code
		scope   string
		want    retry.Stats
	}{
		"a full compartment": {
			bulkhead.CompartmentConfig{}, []string{"", ""}, connect.CodeResourceExhausted, "compartment", failed,
		},
		"a compartment of tenants": {tenants, []string{"b", "c"}, connect.CodeDeadlineExceeded, "compartment", failed},
		"a tenant":                 {tenants, []string{"a"}, connect.CodeDeadlineExceeded, "tenant", not},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Name, c.cfg.Guaranteed = "shop", 2
			set := must(bulkhead.New(bulkhead.Config{Total: 2, Compartments: []bulkhead.CompartmentConfig{c.cfg}}))(t)
			for _, who := range c.holders {
				if _, _, err := set.Compartment("shop").Tenant(who).Acquire(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			mw := must(wardenhttp.New(nil, wardenhttp.Config{
				Answer:      wardenconnect.Answer(),
				Compartment: func(*http.Request) *bulkhead.Compartment { return set.Compartment("shop").Tenant("a") },
			}))(t)
			url := serve(t, mw, map[string]http.Handler{"/echo.Echo/Say": http.NotFoundHandler()})
			caller := must(retry.New(retry.Config{Attempts: 1}))(t)
			again := must(wardenhttp.NewRetry(caller, wardenhttp.RetryConfig{Base: newClient(t, false).Transport}))(t)
			echo := connect.NewClient[text, text](&http.Client{Transport: again}, url+"/echo.Echo/Say")
			_, err := echo.CallUnary(t.Context(), hello())
			if connect.CodeOf(err) != c.code || scope(t, err) != c.scope {
				t.Errorf("R8: %v, scope %q; want %s, %q", err, scope(t, err), c.code, c.scope)
			}
			if diff := cmp.Diff(c.want, caller.Stats()); diff != "" {
				t.Errorf("R8: (-want +got)\n%s", diff)
			}
		})
	}
}

// A handler's own tenant is told apart as well.
func TestATenantsRejectionSaysSo(t *testing.T) {
	r := &decision.Rejection{Explanation: decision.Explanation{Reason: decision.QueueOverflow, Bound: bulkhead.BoundTenant}}
	if got := scope(t, wardenconnect.Convert(r)); got != "tenant" {
		t.Errorf("R8: the scope is %q", got)
	}
}

// scope is what the error's ErrorInfo says of it.
func scope(t *testing.T, err error) string {
	t.Helper()
	e, ok := err.(*connect.Error)
	if !ok {
		t.Fatalf("%v is no *connect.Error", err)
	}
	for _, d := range e.Details() {
		if info, ok := must(d.Value())(t).(*errdetails.ErrorInfo); ok {
			return info.GetMetadata()["scope"]
		}
	}
	t.Fatalf("%v has no ErrorInfo", err)
	return ""
}
