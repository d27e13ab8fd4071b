// SPDX-License-Identifier: Apache-2.0

// Package console is a web page for the on-call engineer: the current state of a warden and its compartments, the history that
// the warden keeps (by default, of the last minute), and the reason of each recent rejection.
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
// registers nothing, and the console must be mounted explicitly. Never expose it to the public: give it its own listener on
// loopback or on an operators' network, and put authentication in front if others share that network. The console is read-only:
// it answers only GET and HEAD, and changes nothing.
//
// # Cost
//
// Without an open page there is no goroutine, and the history is the one that the warden keeps anyway. Compartments and limiters
// without a warden keep no history, so the console remembers what it read for earlier requests. An open page costs one goroutine,
// that of its request, which reads the state once per interval and writes the changes, and most of a megabyte for compression,
// which is used again. At most 16 pages can be open. A slow client delays only itself, and is cut off after ten seconds; nothing
// is buffered for it meanwhile.
//
// # Levels
//
//   - act: in the last 10 s the warden or a limiter rejected work above background, or over 1 % of its critical tasks left
//     without an answer, or failed; all its slots are taken, somebody needs one and nothing ended for 10 s (of a compartment
//     too, if it is above background); a critical compartment rejects more than 5 % of a minute's calls, or over 1 % of them
//     leave; a decision is stale while there is work.
//   - watch: strain without harm; only background work, or a compartment that is not critical, rejects; 1 % of the tasks of
//     another priority left or failed; a dry run or the bypass.
//   - ok: nothing was rejected, and hardly anybody left or failed.
//
// A task leaves without an answer if its client goes or its context ends before it starts (canceled), or its deadline or client
// ends it afterwards (abandoned). It failed if its handler answered with a status of 500 or more, or panicked. Slots full of
// streams are no alarm as long as nobody waits for one.
//
// # JSON
//
// state.json holds the page, and events (text/event-stream) sends it at each interval. With ?history=0 both leave history
// and pools out: scripts that poll want that. rejections.json?find=ID and dead-letters.json have those sections. Clients that
// accept gzip get it.
//
// state.go and compartments.go define each field. version is 1 and rises when a field disappears or changes its meaning. Times
// are RFC 3339, _ms is milliseconds, shares are 0 to 1, numbers have five digits (in history three), counters run since the
// start, and unknown values are null. After the first event, history and pools hold only new elements; from 12 compartments on,
// pools holds none of them. Each limiter and compartment has its level and text, also where verdicts only counts it.
//
// Errors are application/problem+json with a code: read_only, not_found, nothing_to_find, bad_history, too_many_streams, busy,
// closed, unknown_host, cross_site or not_encodable.
//
// docs/console.md explains each part of the page.
package console
