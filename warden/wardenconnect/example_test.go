// SPDX-License-Identifier: Apache-2.0

// The example of the package, run as a test.

package wardenconnect_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenconnect"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Generated handlers are mounted in the same way: path, handler := pingv1connect.NewPingServiceHandler(server).
func ExampleAnswer() {
	w, err := warden.New(warden.Config{})
	if err != nil {
		panic(err)
	}
	guard, err := wardenhttp.New(w, wardenhttp.Config{Answer: wardenconnect.Answer()})
	if err != nil {
		panic(err)
	}
	const path = "/ping.v1.PingService/Ping"
	ping := func(
		_ context.Context, req *connect.Request[wrapperspb.StringValue],
	) (*connect.Response[wrapperspb.StringValue], error) {
		return connect.NewResponse(req.Msg), nil
	}
	mux := http.NewServeMux()
	mux.Handle(path, guard.Handler(connect.NewUnaryHandler(path, ping)))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+path)
	answer, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("hello")))
	fmt.Println(answer.Msg.GetValue(), err)

	w.Limiter().Close() // from here on everything is rejected
	_, err = client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("hello")))
	fmt.Println(connect.CodeOf(err), err)
	// Output:
	// hello <nil>
	// unavailable unavailable: warden: closed
}
