// Package console is a page for whoever is on call: what a warden and its compartments do right now, how it came to that in
// the last minute, and for each task that was refused lately, why.
//
//	c, err := console.New(console.Config{Warden: w})
//	mux := http.NewServeMux()
//	mux.Handle("/console/", http.StripPrefix("/console", c))
//	server := &http.Server{
//		Addr: "127.0.0.1:6060", Handler: mux,
//		ReadHeaderTimeout: time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 15 * time.Second, IdleTimeout: time.Minute,
//	}
//
// # Where it may be seen
//
// The page shows names of tasks and compartments, loads and limits: what an attacker would like to know. So nothing mounts it
// by itself, importing the package registers nothing anywhere, and it should never be reachable by the public: give
// it a listener of its own on loopback or on an operator's network, and put authentication in front if others
// share that network. It changes nothing: only GET and HEAD are answered, and no request of it reaches a limiter.
//
// # What it costs
//
// Nothing while nobody looks: no goroutine is left running, and the history that it shows is the one that the warden keeps
// anyway. Compartments and limiters without a warden keep none, so of those it remembers what it saw when it was asked. One
// open page is one goroutine, that of its request, which looks once in an interval and writes what is new. Open pages are
// bounded by Config.MaxStreams. A reader that does not read holds up itself only, and is cut off after
// Config.WriteTimeout; nothing is kept for it meanwhile.
//
// A controller of somebody else is asked for its Levels in one more goroutine. If that hangs, the page is shown without them
// after two seconds, says so, and asks again when it has come back.
//
// docs/console.md says what each part of the page shows, and has the fields of the JSON.
package console
