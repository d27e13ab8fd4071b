// Package service puts the parts of this module together as most HTTP services need them: a warden, compartments if there are
// any, the middleware, logs, metrics, the operators' console, readiness, and a shutdown that loses no request.
//
//	s, err := service.New(service.Config{Name: "shop", OperatorsAddr: "127.0.0.1:6060"})
//	if err != nil {
//		return err
//	}
//	mux := http.NewServeMux()
//	mux.Handle("GET /search", s.Handler(search))
//	mux.Handle("GET /readyz", s.Ready)
//	server.Handler = mux
//	return s.Run(ctx, server)
//
// It has no behavior of its own: [New] calls the constructors of packages warden, bulkhead, wardenhttp, wardenslog and console
// with one name, and [Service.Run] does in order what docs/guides/shutdown.md says. A program that needs another order makes the
// same parts itself. docs/quickstart/service.md shows a complete program.
package service
