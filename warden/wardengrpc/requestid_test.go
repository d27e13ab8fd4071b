// SPDX-License-Identifier: Apache-2.0

// One id for one rejected call: what the client is told is what the limiter and the compartment tell.

package wardengrpc_test

import (
	"context"
	"regexp"
	"testing"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

func TestOneIDOfARejectedCall(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	const parent = "00-" + trace + "-b7ad6b7169203331-01"
	made := regexp.MustCompile(`\A[0-9a-f]{16}\z`)
	g := newGuard(t, 0, 0)
	c := newCompartments(t, bulkhead.CompartmentConfig{Guaranteed: 1})
	_, busy, err := c.Compartment("unary").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Release(nil)
	own := ""
	task := func(context.Context, string) warden.Task { return warden.Task{ID: own} }
	ofWarden := served(t, &service{}, mustNew(t, g.Warden, wardengrpc.Config{Task: task}))
	ofCompartment := served(t, &service{}, mustNew(t, nil, wardengrpc.Config{Compartment: c.of}))
	for _, x := range []struct {
		own  string
		md   metadata.MD
		want string // "": one that is made
	}{
		{"", nil, ""},
		{"", metadata.Pairs("x-request-id", "7f9c", "traceparent", parent), "7f9c"},
		{"", metadata.Pairs("x-request-id", "7f9c", "x-request-id", "7f9c", "traceparent", parent), trace},
		{"", metadata.Pairs("x-request-id", `a"b`, "traceparent", "00"), ""},
		{"own", metadata.Pairs("x-request-id", "7f9c"), "own"},
	} {
		ctx := metadata.NewOutgoingContext(t.Context(), x.md)
		same := func(err error, inside string) {
			t.Helper()
			info, _ := details(t, err)
			id := info.GetMetadata()["request_id"]
			if id != inside || x.want != "" && id != x.want || x.want == "" && !made.MatchString(id) {
				t.Errorf("%v: told %q, inside %q, want %q", x.md, id, inside, x.want)
			}
		}
		own = x.own
		_, err := ofWarden.UnaryCall(ctx, &pb.SimpleRequest{})
		wantRejected(t, err, codes.ResourceExhausted, "PRESSURE_HIGH")
		same(err, g.tasks.Load().ID)
		if own != "" {
			continue // a compartment is asked for no task
		}
		_, err = ofCompartment.UnaryCall(ctx, &pb.SimpleRequest{})
		wantRejected(t, err, codes.ResourceExhausted, "QUEUE_OVERFLOW")
		same(err, (<-c.ended).Task.ID)
	}
}
