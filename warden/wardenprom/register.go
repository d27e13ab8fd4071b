// SPDX-License-Identifier: Apache-2.0

// Registration of several collectors, or none.

package wardenprom

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/warden/internal/nilcheck"
)

// Register registers all collectors at r or, if one fails, none of them. The error is that of r.Register, such as a
// prometheus.AlreadyRegisteredError, or a *decision.InvalidError if r or a collector is nil, or r panics.
func Register(r prometheus.Registerer, all ...prometheus.Collector) (err error) {
	if missing := nilcheck.Required(r); missing != "" {
		return invalidField("r", missing, "a registry")
	}
	var registered []prometheus.Collector
	defer func() {
		if v := recover(); v != nil {
			err = invalidField("r", fmt.Sprintf("one that panics: %v", v), "a registry that can be used")
		}
		if err != nil {
			for _, c := range registered {
				r.Unregister(c)
			}
		}
	}()
	for _, c := range all {
		if missing := nilcheck.Required(c); missing != "" { // a registry would call it in a goroutine of its own
			return invalidField("collector", missing, "a collector")
		}
		if err := r.Register(c); err != nil {
			return err
		}
		registered = append(registered, c)
	}
	return nil
}
