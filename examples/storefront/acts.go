// The acts of the demo: each runs one scenario against one kind of shop.
package main

import (
	"context"
	"fmt"
	"io"
)

// A story is the outcome of all acts.
type story struct {
	titles   []string // one for each result
	results  []result
	findings findings
	moral    string // printed if the findings hold
}

// print writes the tables and the verdict.
func (s story) print(w io.Writer) {
	for i, res := range s.results {
		printTable(w, res, s.titles[i])
	}
	printLegend(w)
	printVerdict(w, s.findings, s.moral)
}

// poolsApart is the head of the column of pools where each route has its own.
func poolsApart(sc scenario) string {
	return fmt.Sprintf("connections in use/at most, by route; %d in all", sc.total())
}

// run runs the four acts. When ctx ends, run returns the results so far.
func (d demo) run(ctx context.Context, cfg shopConfig, seed uint64, progress io.Writer) (s story, err error) {
	acts := []struct {
		way, title string
		pools      string
		scenario   scenario
		run        func(context.Context, shopConfig, uint64, func(moment)) (result, error)
	}{
		{shared, "one pool of connections shared by all routes", "connections in use/at most", d.incident, runInProcess},
		{divided, "a compartment and a pool for each route", poolsApart(d.incident), d.incident, runInProcess},
		{divided, "compartments only, while a sale overloads the processor", "", d.overload, runInChild},
		{protected, "the same sale, with a warden in front of the whole server to limit concurrency and shed load", "", d.overload, runInChild},
	}
	printIntro(progress, d.incident, database(cfg.database), seed)
	for i, act := range acts {
		if i == 2 {
			printOverload(progress, d.overload)
		}
		printWay(progress, i+1, len(acts), act.title, act.pools)
		cfg.way, cfg.scenario, cfg.render = act.way, act.scenario, act.scenario.render
		res, err := act.run(ctx, cfg, seed, func(m moment) { printMoment(progress, m) })
		if err != nil {
			return s, fmt.Errorf("%s: %w", act.title, err)
		}
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
		s.titles, s.results = append(s.titles, fmt.Sprintf("%d. %s", i+1, act.title)), append(s.results, res)
	}
	s.findings = append(judgeIncident(s.results[0], s.results[1]), judgeOverload(s.results[2], s.results[3])...)
	s.moral = "With one shared pool, the slow analytics query makes checkout fail. With a compartment for each\n" +
		"route, only analytics fails. With a warden, checkout keeps working while the processor is overloaded."
	return s, nil
}

func database(url string) string {
	if url == "" {
		return "SQLite"
	}
	return "PostgreSQL"
}

// matrix overloads each compartment alone, then all together.
func matrix(ctx context.Context, cfg shopConfig, seed uint64, progress io.Writer) (s story, err error) {
	base := cfg.scenario
	cfg.way, cfg.render = divided, 0
	for target := checkout; target <= allRoutes; target++ {
		title := overloadTitle(target)
		printWay(progress, int(target)+1, int(allRoutes)+1, title, poolsApart(base))
		cfg.scenario = overloadOf(target, base)
		res, err := runInProcess(ctx, cfg, seed, func(m moment) { printMoment(progress, m) })
		if err != nil {
			return s, fmt.Errorf("%s: %w", title, err)
		}
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
		res.way = title
		s.titles, s.results = append(s.titles, title), append(s.results, res)
	}
	s.findings = judgeMatrix(s.results, base)
	s.moral = "An overloaded compartment leaves the others alone; when all are overloaded, each gets its guarantee."
	return s, nil
}
