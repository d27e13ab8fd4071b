// SPDX-License-Identifier: Apache-2.0

// Faults that neither the rules nor the runbook were written for. They are played only if they are named.
package main

import "github.com/stopbank/stopbank/internal/system/deploy"

// heldout returns them. What is right was decided before their first game, from the list of the runbook's names alone.
func heldout() []fault {
	return []fault{
		{
			name: "locked", about: "a forgotten transaction has the write lock of the database: each checkout waits 1 s and fails",
			ill: "database=locked", named: []string{"failing dependency", "slow dependency"}, want: []string{"instance"},
		},
		{
			name: "half-shut", about: "a pod has closed its limiter, but serves on behind the load balancer: half of all requests get 503",
			ill: "limiter=closed", named: []string{"traffic to a closed instance"}, want: []string{"instance"},
		},
		{
			name: "all-critical", about: "a release makes each request critical, and a sale begins: checkouts wait in vain behind pages",
			pods: 1, env: []string{"GOMAXPROCS=1"}, args: []string{"-render", "40ms"}, alone: true, ill: "priority=critical",
			load: from(deploy.Load{5, 5, 1, 0.5}, deploy.Load{5, 75, 1, 0.5}), named: []string{"all is critical"},
		},
		{
			name: "collected", about: "a cache of 128 MiB at once, with GOMEMLIMIT at 100 MiB: pages lose their processor to the collector",
			pods: 1, env: []string{"GOMAXPROCS=1", "GOMEMLIMIT=100MiB"}, args: []string{"-render", "40ms"}, alone: true,
			ill: "memory=cached", load: deploy.Steady(deploy.Load{3, 15, 1, 0.5}),
			named: []string{"memory limit too low", "memory full"}, want: []string{"instance"},
		},
		{
			name: "throttled", about: "a provider limits one worker's rate: its handlers ask for a call a minute later, again and again",
			task: "handlers=postpone", named: []string{"postponed records"}, want: []string{"instance"},
		},
	}
}
