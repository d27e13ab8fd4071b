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
// Import the package into a program that calls caddycmd.Main, as the command caddy beside it does, or build Caddy with
// xcaddy build --with github.com/stopbank/stopbank/warden/wardencaddy. It registers three modules:
//
//   - [Handler], http.handlers.stopbank: the directive stopbank, ordered before reverse_proxy and behind handle and route;
//   - [Transport], http.reverse_proxy.transport.stopbank: reverse_proxy's own transport, under which a request whose client has
//     left, or whose response_header_timeout is over, keeps its slot until the upstream has answered;
//   - [Console], http.handlers.stopbank_console: the operators' page, the directive stopbank_console.
//
// Handlers with one name share a warden. What it has learned and counted outlives a reload of Caddy's configuration. Its metrics
// are in Caddy's registry.
//
// # Options
//
// The directive is "stopbank [<matcher>] [<name>] { ... }"; in JSON the handler has the same names.
//
//   - name, default caddy: the name of the warden in metrics, logs and on the console. Handlers with one name are for one
//     service behind several sites.
//   - timeout, default unlimited: how long after its arrival an answer is useful. Set it: it also bounds how long a request
//     waits.
//   - priority <p> [<matcher>], default normal: background, normal, high, critical, a number from -128 to 127, or a placeholder
//     whose value is one of these. The first line that matches counts. A priority from a header is one that any client may
//     choose: use a placeholder that an earlier directive sets, such as forward_auth or map.
//   - tenant <placeholder>: whose request it is, such as {http.auth.user.id}. Among requests of one priority, one customer does not
//     take what others need. Nothing that a client may choose.
//   - exempt <matcher>: probes and streams that need no slot.
//   - mode, default enforce: dry_run lets everything pass, and metrics and log say what would have been rejected; bypass lets
//     everything pass.
//   - trusted <CIDR...>, default nobody: peers, also private_ranges, that may raise their priority by a header. Behind a
//     proxy that changes addresses everybody has a private one; a trusted proxy removes Warden-Priority from what comes from outside.
//   - max, min and initial, default 65,536, 1, and 16 (more on a machine with more processors, and total with compartments
//     if that is more): bounds of the limit, and its beginning. If you know the number of workers, set max to it, and
//     initial too.
//   - queue, default 1024: how many requests may wait, 1 or more.
//   - grace, default 10s: how long Caddy waits for a client that sends or reads slowly, and for an upstream that goes on after
//     its client has left.
//   - total, and compartment <name> [<matcher>] { ... }: kinds of requests apart. The first whose matcher matches gets the
//     request, and the last has no matcher.
//
// Of a compartment:
//
//   - guaranteed, default 0: slots of its own, together no more than total; lendable, default 0: of these, those that
//     others may use while they are idle; max, default guaranteed: slots with those that it borrows.
//   - queue, default 0, nobody waits: how many may wait, with tenant of each tenant. lendable, max_wait and tenant need
//     one.
//   - max_wait, default as timeout: how long a request may wait; timeout, default unlimited: how long it may run after
//     that.
//   - priority, default normal: which compartment below its guarantee comes first; 127 (critical) is watched by alerts.
//   - tenant <placeholder> <slots>: whose request it is, and how many slots one tenant may have. Use what was checked, such as
//     {http.auth.user.id} of basic_auth, or a header that forward_auth copies from its answer: who invents keys has as many
//     shares. Requests without the key, or with its header, query parameter or cookie more than once, also by a name that PHP
//     takes for it (api.key for api_key), are one tenant together; what map, vars and header_regexp have made of a repeated
//     one is not seen.
//
// The upstream gets Warden-Priority and Warden-Timeout as they counted here, and Warden-Timeout-Untrusted if a stranger has chosen the
// time; what he has sent in Warden-Priority is removed.
//
// # Reload and stop
//
// Bounds, queue, mode and slots change in the running warden, by the names, priorities and tenants of its compartments;
// requests that run or wait go on. A configuration that fails leaves the one before it as it was. A stop waits for running and
// waiting requests, as Caddy does: set grace_period to bound it, and shutdown_delay to go on serving until load balancers have
// noticed.
package wardencaddy
