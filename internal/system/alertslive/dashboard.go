// SPDX-License-Identifier: Apache-2.0

// The dashboard, as far as it asks Prometheus.
package main

import (
	"encoding/json"
	"os"
	"strings"
)

// A panel is its title and its queries, over all jobs and instances.
type panel struct {
	title, unit string
	instant     bool // it shows numbers of now, and no lines
	queries     []string
}

// dashboard reads the panels that ask something.
func dashboard(path string) (all []panel, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var board struct {
		Panels []struct {
			Title, Type string
			FieldConfig struct{ Defaults struct{ Unit string } }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		return nil, err
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")
	for _, p := range board.Panels {
		next := panel{title: p.Title, unit: p.FieldConfig.Defaults.Unit, instant: p.Type == "stat"}
		for _, t := range p.Targets {
			next.queries = append(next.queries, variables.Replace(t.Expr))
		}
		if len(next.queries) > 0 {
			all = append(all, next)
		}
	}
	return all, nil
}
