// SPDX-License-Identifier: Apache-2.0

// Package wardencaddy is overload protection for Caddy: a warden in front of reverse_proxy finds how many requests the upstream
// can do at a time, lets the important ones pass first, and answers the others early.
//
//	:8080 {
//		stopbank {
//			timeout 2s
//			priority critical /checkout*
//		}
//		reverse_proxy 127.0.0.1:8000 {
//			transport stopbank
//		}
//	}
//
// Import the package into a program that calls caddycmd.Main, as examples/caddy does, or build Caddy with
// xcaddy build --with github.com/stopbank/stopbank/warden/wardencaddy. It registers three modules:
//
//   - [Handler], http.handlers.stopbank: the directive stopbank, ordered before reverse_proxy;
//   - [Transport], http.reverse_proxy.transport.stopbank: reverse_proxy's own transport, under which a request whose client has
//     left keeps its slot until the upstream has answered;
//   - [Console], http.handlers.stopbank_console: the operators' page, the directive stopbank_console.
//
// Handlers with one name share a warden. What it has learned and counted outlives a reload of Caddy's configuration. Its metrics
// are in Caddy's registry.
package wardencaddy
