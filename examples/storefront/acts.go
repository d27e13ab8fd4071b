// The acts of the demo: which scenario is told in which shop, one after the other.
package main

import (
	"context"
	"fmt"
	"io"
)

// A story is what was told, and what to think of it.
type story struct {
	titles   []string // of the results
	results  []result
	findings findings
	moral    string // if the findings hold
}

// print ends the demo.
func (s story) print(w io.Writer) {
	for i, res := range s.results {
		printTable(w, res, s.titles[i])
	}
	printLegend(w)
	printVerdict(w, s.findings, s.moral)
}

// tell runs the four acts. When ctx ends it returns what it has.
func (d demo) tell(ctx context.Context, cfg shopConfig, seed uint64, progress io.Writer) (s story, err error) {
	acts := []struct {
		way, title string
		scenario   scenario
		run        func(context.Context, shopConfig, uint64, func(moment)) (result, error)
	}{
		{shared, "one pool of connections shared by all routes", d.incident, runHere},
		{divided, "a compartment and a pool for each route", d.incident, runHere},
		{divided, "compartments only, while a sale overloads the processor", d.overload, runApart},
		{protected, "the same sale, with a warden in front of the whole server to limit concurrency and shed load", d.overload, runApart},
	}
	printIntro(progress, d.incident, database(cfg.database), seed)
	for i, act := range acts {
		if i == 2 {
			printOverload(progress, d.overload)
		}
		printWay(progress, i+1, len(acts), act.title)
		cfg.way, cfg.scenario, cfg.render = act.way, act.scenario, 0
		if act.scenario.phases[len(act.scenario.phases)-1].name == sale {
			cfg.render = renderTime
		}
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
	s.moral = "With one shared pool, the slow analytics query makes checkout fail. With a compartment for each\nroute, only analytics fails. With a warden, checkout keeps working while the processor is overloaded."
	return s, nil
}

func database(url string) string {
	if url == "" {
		return "SQLite"
	}
	return "PostgreSQL"
}

// matrix overloads each compartment, and then all.
func matrix(ctx context.Context, cfg shopConfig, seed uint64, progress io.Writer) (s story, err error) {
	base := cfg.scenario
	cfg.way, cfg.render = divided, 0
	for target := checkout; target <= every; target++ {
		title := overloadTitle(target)
		printWay(progress, int(target)+1, int(every)+1, title)
		cfg.scenario = overloadOf(target, base)
		res, err := runHere(ctx, cfg, seed, func(m moment) { printMoment(progress, m) })
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
	s.moral = "Whoever is overloaded, the others go on; and when all are, each has what it is guaranteed."
	return s, nil
}
