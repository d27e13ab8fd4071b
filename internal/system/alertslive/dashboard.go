// SPDX-License-Identifier: Apache-2.0

// The dashboard, as far as it asks Prometheus.
package main

import (
	"encoding/json"
	"os"
	"strings"
)

// dashboard reads the queries of the panels, over all jobs and instances.
func dashboard(path string) (queries []string, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(b, &board); err != nil {
		return nil, err
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")
	for _, p := range board.Panels {
		for _, t := range p.Targets {
			queries = append(queries, variables.Replace(t.Expr))
		}
	}
	return queries, nil
}
