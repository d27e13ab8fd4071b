// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardengrpc"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// These programs have no customers of README's.
var customers map[string]string

// task is README's, which knows no route of these programs.
func task(r *http.Request) warden.Task {
	t := warden.Task{Tenant: customers[r.Header.Get("X-Api-Key")]}
	if r.URL.Path == "/checkout" {
		t.Priority = decision.Critical
	}
	return t
}

// A shield is what a server puts around its handler, or among the options of its gRPC server; zero: it stays bare.
type shield struct {
	handler func(http.Handler) http.Handler
	options []grpc.ServerOption
}

// protect has the lines of README, and of docs/observability.md for gRPC.
func protect() (shield, error) {
	w, err := warden.New(warden.Config{})
	if err != nil {
		return shield{}, err
	}
	go func() { _ = w.Run(context.Background()) }()
	protect, err := wardenhttp.New(w, wardenhttp.Config{Task: task, Timeout: 500 * time.Millisecond})
	if err != nil {
		return shield{}, err
	}
	guard, err := wardengrpc.New(w, wardengrpc.Config{})
	if err != nil {
		return shield{}, err
	}
	return shield{protect.Handler, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(guard.UnaryServer()),
		grpc.ChainStreamInterceptor(guard.StreamServer()),
	}}, nil
}

// around returns the handler behind the shield.
func (s shield) around(h http.Handler) http.Handler {
	if s.handler == nil {
		return h
	}
	return s.handler(h)
}
