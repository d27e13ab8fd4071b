// SPDX-License-Identifier: Apache-2.0

// Package console is a web page for the on-call engineer: the current state of a warden and its compartments, the history of
// the last minute, and the reason of each recent rejection.
//
//	c, err := console.New(console.Config{Warden: w})
//	if err != nil {
//		return err
//	}
//	mux := http.NewServeMux()
//	mux.Handle("/console/", http.StripPrefix("/console", c))
//	server := &http.Server{
//		Addr: "127.0.0.1:6060", Handler: mux,
//		ReadHeaderTimeout: time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 15 * time.Second, IdleTimeout: time.Minute,
//	}
//
// # Access
//
// The page shows names of tasks and compartments, loads and limits, which help an attacker. Therefore importing the package
// registers nothing, and the console must be mounted explicitly. Never expose it to the public: give it its own listener
// on loopback or on an operators' network, and put authentication in front if others share that network. The console is
// read-only: it answers only GET and HEAD, and no request reaches a limiter.
//
// # Cost
//
// Without an open page there is no goroutine, and the history is the one that the warden keeps anyway. Compartments and limiters
// without a warden keep no history, so the console remembers what it read for earlier requests. An open page costs one goroutine,
// that of its request, which reads the state once per interval and writes the changes, and most of a megabyte for compression,
// which is used again. At most 16 pages can be open. A slow client delays only itself, and is cut off after ten seconds; nothing
// is buffered for it meanwhile.
//
// docs/console.md explains each part of the page.
package console
