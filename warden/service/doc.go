// SPDX-License-Identifier: Apache-2.0

// Package service puts the parts of this module together for an HTTP service: a warden, compartments if there are any, the
// middleware, logs, metrics, the operators' console, readiness, and a shutdown that waits for requests.
//
//	request -> Handler -> warden or compartment -> your handler
//	operators -> OperatorsAddr -> console, and what you add: metrics, pprof
//
// A whole server:
//
//	s, err := service.New(service.Config{
//		Name:          "shop",
//		HTTP:          wardenhttp.Config{Timeout: 2 * time.Second},
//		OperatorsAddr: "127.0.0.1:6060", // the console is at /console/
//	})
//	if err != nil {
//		return err
//	}
//	mux := http.NewServeMux()
//	mux.Handle("GET /search", s.Handler(search))
//	mux.Handle("GET /readyz", s.Ready)
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	return s.Run(ctx, &http.Server{
//		Addr: ":8080", Handler: mux,
//		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
//	})
//
// Requests beyond the limit wait in a queue. One that cannot be served is answered with a reason: 503, with Retry-After, if it
// was rejected; 429, also with Retry-After, if its tenant has used up its share of a compartment; 504 if its deadline, or the
// longest wait in its compartment, has passed or cannot be met. See [wardenhttp.WriteError]. A handler that hangs holds its slot
// until it returns: set HTTP.Timeout, after which its context ends, and heed the context. [Service.Run] blocks until the server has
// shut down.
//
// It has no behavior of its own: [New] calls the constructors of packages warden, bulkhead, wardenhttp, wardenslog and console
// with one name, and [Service.Run] starts and stops them in the order that its text lists, [Service.Start] and [Service.Stop] those of a
// program whose framework has the server. A program that needs another order
// makes the same parts itself. docs/quickstart/service.md shows a complete program, and docs/guides/shutdown.md gives the reasons
// for the order.
package service
