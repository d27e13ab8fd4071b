// SPDX-License-Identifier: Apache-2.0

// A server and a client, each under a warden.

package wardengrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardengrpc"
)

func ExampleNew() {
	w, err := warden.New(warden.Config{})
	if err != nil {
		panic(err)
	}
	guard, err := wardengrpc.New(w, wardengrpc.Config{
		Exempt: func(string) bool { return false }, // here the health service stands for a real one
	})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(guard.UnaryServer()),
		grpc.ChainStreamInterceptor(guard.StreamServer()),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go server.Serve(listener)
	defer server.Stop()

	cc, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer cc.Close()
	client := healthpb.NewHealthClient(cc)
	answer, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(answer.GetStatus(), err)

	w.Limiter().Close() // from here on everything is rejected
	_, err = client.Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(status.Code(err), status.Convert(err).Message())
	// Output:
	// SERVING <nil>
	// Unavailable warden: closed
}

// On the client's side a rejected call is not sent, and the error explains itself.
func ExampleInterceptors_UnaryClient() {
	w, _ := warden.New(warden.Config{})
	guard, _ := wardengrpc.New(w, wardengrpc.Config{})
	cc, _ := grpc.NewClient("127.0.0.1:1",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(guard.UnaryClient()),
		grpc.WithChainStreamInterceptor(guard.StreamClient()),
	)
	defer cc.Close()
	w.Limiter().Close()
	err := cc.Invoke(context.Background(), "/prices.Prices/Quote", nil, nil)
	var why *warden.Rejection
	fmt.Println(status.Code(err) == codes.Unavailable, errors.As(err, &why), why.Reason, why.Task.Name)
	// Output: true true closed /prices.Prices/Quote
}

// A client that calls again what may be handled twice, within a budget; it asks its warden for a slot for each attempt.
func ExampleNewRetry() {
	w, _ := warden.New(warden.Config{})
	guard, _ := wardengrpc.New(w, wardengrpc.Config{})
	caller, _ := retry.New(retry.Config{Backoff: time.Millisecond})
	again, _ := wardengrpc.NewRetry(caller, wardengrpc.RetryConfig{
		Repeatable: func(fullMethod string) bool { return strings.HasPrefix(fullMethod, "/prices.Prices/Get") },
	})
	cc, _ := grpc.NewClient("127.0.0.1:1", // nobody is there
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(again.UnaryClient(), guard.UnaryClient()),
		grpc.WithChainStreamInterceptor(again.StreamClient(), guard.StreamClient()),
	)
	defer cc.Close()
	err := cc.Invoke(
		context.Background(), "/prices.Prices/GetQuote", &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{},
	)
	fmt.Println(status.Code(err), caller.Stats().Retries)
	// Output: Unavailable 1
}
