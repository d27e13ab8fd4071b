// SPDX-License-Identifier: Apache-2.0

// The smallest configuration.

package wardencaddy_test

import (
	"encoding/json"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/stopbank/stopbank/warden/wardencaddy"
)

// A Caddyfile whose errors name the line, the field and what is allowed.
func Example() {
	for _, mode := range []string{"dry_run", "off"} {
		cfg, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(`:8080 {
			stopbank {
				timeout 2s
				mode `+mode+`
				priority critical /checkout*
			}
			reverse_proxy 127.0.0.1:8000 {
				transport stopbank
			}
		}`), map[string]any{"filename": "Caddyfile"})
		if err != nil {
			fmt.Println(err)
			continue
		}
		var whole caddy.Config
		fmt.Println("a configuration:", json.Unmarshal(cfg, &whole) == nil)
	}
	// Output:
	// a configuration: true
	// parsing caddyfile tokens for 'stopbank': warden: stopbank: mode is "off"; allowed: enforce, dry_run or bypass, at Caddyfile:4
}
