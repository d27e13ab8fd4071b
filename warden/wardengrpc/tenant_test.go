// SPDX-License-Identifier: Apache-2.0

// What a rejected call teaches the throttle: ResourceExhausted is overload, or one tenant's share, or a stranger's quota.

package wardengrpc_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

// Two calls, and one place to wait: one of them, whichever it is, is told that the tenant's queue is full.
func TestATenantsFullQueue(t *testing.T) {
	cfg := bulkhead.CompartmentConfig{Guaranteed: 2, MaxQueue: 1, Tenants: bulkhead.TenantsConfig{Max: 1}}
	c := newCompartments(t, cfg).Compartment("unary").Tenant("a")
	_, slot, err := c.Acquire(t.Context())
	noError(t, err)
	i := mustNew(t, nil, wardengrpc.Config{Compartment: func(context.Context, string) *bulkhead.Compartment { return c }})
	r, caller := newRetry(t, retry.Config{Attempts: 1}, wardengrpc.RetryConfig{})
	client := pb.NewTestServiceClient(dial(t, serve(t, &service{}, under(i)...), again(r)...))
	answers := make(chan error, 2)
	for range cap(answers) {
		go func() { answers <- kinds["unary"](t.Context(), client) }()
	}
	err = await(t, "rejection", answers)
	wantRejected(t, err, codes.ResourceExhausted, "QUEUE_OVERFLOW")
	info, _ := details(t, err)
	if got := info.GetMetadata(); got["scope"] != "tenant" || got["processed"] != "false" {
		t.Errorf("R8: %v does not say that it is the tenant's", got)
	}
	slot.Release(nil)
	noError(t, await(t, "answer", answers))
	if diff := cmp.Diff(retry.Stats{Calls: 2, Accepted: 1}, caller.Stats()); diff != "" {
		t.Errorf("R8: (-want +got)\n%s", diff)
	}
}

// A handler's own tenant is told apart as well.
func TestATenantsRejectionSaysSo(t *testing.T) {
	i := mustNew(t, nil, wardengrpc.Config{Compartment: func(context.Context, string) *bulkhead.Compartment { return nil }})
	for bound, want := range map[decision.Bound]string{
		bulkhead.BoundTenant: "tenant", bulkhead.BoundSlots: "compartment", bulkhead.BoundTotal: "",
	} {
		r := &warden.Rejection{Explanation: decision.Explanation{Reason: bulkhead.TimeoutQueued, Bound: bound}}
		for _, err := range []error{r, fmt.Errorf("wrapped: %w", r)} {
			info, _ := details(t, i.Convert(err))
			if got := info.GetMetadata()["scope"]; got != want {
				t.Errorf("R8: %T at the bound %s has the scope %q, want %q", err, bound, got, want)
			}
		}
	}
}

// What each answer of any server teaches the throttle, and whether the call is made again.
func TestWhatAStatusTeaches(t *testing.T) {
	ours := func(metadata ...string) *errdetails.ErrorInfo { return info("stopbank/warden", metadata...) }
	wait := &errdetails.RetryInfo{}
	rejected, failed := retry.Stats{Calls: 1, Rejected: 3, Retries: 2}, retry.Stats{Calls: 1, Failed: 3, Retries: 2}
	unknown, accepted := retry.Stats{Calls: 1, Retries: 2}, retry.Stats{Calls: 1, Accepted: 1}
	for _, c := range []struct {
		code    codes.Code
		details []protoadapt.MessageV1
		want    retry.Stats
	}{
		{codes.ResourceExhausted, []protoadapt.MessageV1{ours()}, rejected},
		{codes.ResourceExhausted, []protoadapt.MessageV1{ours("scope", "server"), wait}, rejected},
		{codes.ResourceExhausted, []protoadapt.MessageV1{ours("scope", "tenant"), wait}, unknown},
		{codes.ResourceExhausted, []protoadapt.MessageV1{ours("scope", "compartment", "processed", "false")}, failed},
		{codes.Unavailable, []protoadapt.MessageV1{ours("scope", "compartment")}, failed},
		{codes.ResourceExhausted, []protoadapt.MessageV1{wait}, unknown},
		{codes.ResourceExhausted, []protoadapt.MessageV1{info("example.com", "scope", "tenant"), wait}, unknown},
		{codes.ResourceExhausted, nil, retry.Stats{Calls: 1}}, // a quota, or a message that is too long
		{codes.DeadlineExceeded, []protoadapt.MessageV1{ours("processed", "false")}, rejected},
		{codes.DeadlineExceeded, []protoadapt.MessageV1{ours()}, failed}, // the handler was too slow
		{codes.DeadlineExceeded, []protoadapt.MessageV1{ours("scope", "tenant")}, unknown},
		{codes.Unavailable, []protoadapt.MessageV1{ours()}, rejected},
		{codes.Unavailable, []protoadapt.MessageV1{info("example.com", "scope", "tenant")}, failed},
		{codes.Unavailable, nil, failed},
		{codes.DeadlineExceeded, nil, failed},
		{codes.Internal, nil, accepted},
		{codes.Internal, []protoadapt.MessageV1{ours("scope", "tenant")}, accepted},
	} {
		answer := must(status.New(c.code, "as the table says").WithDetails(c.details...))(t)
		r, caller := newRetry(t, generous, wardengrpc.RetryConfig{Repeatable: repeatable})
		client := pb.NewTestServiceClient(dial(t, serve(t, serving(func(context.Context) error { return answer.Err() })), again(r)...))
		if err := kinds["unary"](t.Context(), client); status.Code(err) != c.code {
			t.Errorf("R8: %v, want %s", err, c.code)
		}
		if diff := cmp.Diff(c.want, caller.Stats()); diff != "" {
			t.Errorf("R8: %s %v (-want +got)\n%s", c.code, c.details, diff)
		}
	}
}

// A method that is always unavailable throttles nobody who calls another; unless that fails too.
func TestABrokenMethodThrottlesNoOther(t *testing.T) {
	for _, down := range []bool{false, true} {
		s := &service{
			unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
				return nil, status.Error(codes.Unavailable, "as every time")
			},
			duplex: func(pb.TestService_FullDuplexCallServer) error {
				if down {
					return status.Error(codes.DeadlineExceeded, "as every time")
				}
				return nil
			},
		}
		r, caller := newRetry(t, retry.Config{Attempts: 1, Rand: func() float64 { return 0 }}, wardengrpc.RetryConfig{})
		client := pb.NewTestServiceClient(dial(t, serve(t, s), again(r)...))
		for i := range 200 {
			_ = kinds["unary"](t.Context(), client)
			if err := kinds["stream"](t.Context(), client); !down && err != nil {
				t.Fatalf("H25: call %d: %v", i, err)
			}
		}
		if n := caller.Stats().Throttled; down != (n > 300) {
			t.Errorf("H25: down %t: %d of 400 calls throttled", down, n)
		}
	}
}

func info(domain string, metadata ...string) *errdetails.ErrorInfo {
	i := &errdetails.ErrorInfo{Reason: "QUEUE_OVERFLOW", Domain: domain, Metadata: map[string]string{}}
	for k := 0; k < len(metadata); k += 2 {
		i.Metadata[metadata[k]] = metadata[k+1]
	}
	return i
}
