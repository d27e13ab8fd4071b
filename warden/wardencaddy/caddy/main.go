// SPDX-License-Identifier: Apache-2.0

// Caddy is Caddy with overload protection: run --config Caddyfile protects the service of app.py or app.js.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/stopbank/stopbank/warden/wardencaddy"
)

func main() { caddycmd.Main() }
