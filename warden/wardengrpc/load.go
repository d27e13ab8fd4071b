// SPDX-License-Identifier: Apache-2.0

// The load report in the trailer of a call: ORCA's, which grpc-go's weighted_round_robin reads.

package wardengrpc

import (
	"context"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
)

// loadGRPC is the key of the trailer.
const loadGRPC = "endpoint-load-metrics-bin"

// Fields of xds.data.orca.v3.OrcaLoadReport. Three numbers are not worth its module, which every user would have to load.
const (
	rpsFractional          = 6
	eps                    = 7
	applicationUtilization = 9
)

// reportsLoad reports whether the client of a call gets the load.
func (i *Interceptors) reportsLoad(ctx context.Context, fullMethod string) bool {
	return i.cfg.LoadReports && i.cfg.Trusted(ctx, fullMethod)
}

// reportLoad sets the trailer, unless balancers would ignore it: without utilization or calls served there is no weight.
func (i *Interceptors) reportLoad(ctx context.Context) {
	l := i.w.Load()
	if l.Utilization <= 0 || l.Served <= 0 {
		return
	}
	b := make([]byte, 0, 27)
	for _, f := range [...]struct {
		number protowire.Number
		value  float64
	}{{rpsFractional, l.Served}, {eps, l.Failed}, {applicationUtilization, l.Utilization}} {
		b = protowire.AppendTag(b, f.number, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, math.Float64bits(f.value))
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs(loadGRPC, string(b))) // it fails only where there is no call
}
