// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command lab sends real HTTP, more than can be answered, to each way of limiting in turn. It has three experiments: overload (servers of
// its own, beside peers), container (servers with too little memory or processor) and caddy (proxies before services in other languages).
// All have one generator, flood, one table of cells, docs/evidence/overload.json, and one report.
//
//	lab overload -only '^cpu4/2x/untold/' -rounds 1
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/zeromicro/go-zero/core/logx"
)

// experiment is one of the three.
type experiment struct {
	name   string
	length time.Duration // of a cell, after its warm-up
	groups func() []group
}

func experiments() []experiment {
	return []experiment{
		{"overload", 6 * time.Second, overloadGroups}, {"container", 8 * time.Second, containerGroups}, {"caddy", 15 * time.Second, caddyGroups},
	}
}

// selections are names for -only.
func selections() map[string]string {
	return map[string]string{
		"headline": "^(cpu4y?|costs|app|mixed|downstream|wait.*)/(2|4|0.03|0.12)x/untold/", // README's table
		"noes":     "/stay/",                                                               // who is told no, how soon, and who leaves without an answer
	}
}

func main() {
	logx.Disable() // go-zero's package stat logs in every process that links it
	if len(os.Args) == 3 && os.Args[1] == "-serve" {
		exit(serve(os.Args[2]))
	}
	if len(os.Args) == 2 && os.Args[1] == "-neighbour" {
		neighbour()
	}
	exit(run(os.Args[1:]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "lab: %v\n", err)
		os.Exit(2)
	}
	os.Exit(0)
}

// run is the command.
func run(args []string) error {
	f := flag.NewFlagSet("lab overload|container|caddy", flag.ContinueOnError)
	l := &lab{root: "../.."}
	only := f.String("only", "", "the cells whose name, WORK/LOADx/CLIENTS/WAY, matches one of these regular expressions, separated by commas; headline: README's; noes: who is told no")
	f.IntVar(&l.rounds, "rounds", 3, "of each cell, 1 to 100, each with all ways in an order that alternates")
	f.StringVar(&l.before, "before", "", "a `build` of this program at another commit: its warden takes turns with ours, and the differences are printed; keeps nothing")
	out := f.String("o", "", "root of a checkout, whose cells are kept and whose pages are made of them; empty: only print")
	render := f.Bool("render", false, "measure nothing, write the pages again")
	for _, e := range experiments() {
		if len(args) > 0 && args[0] == e.name {
			l.experiment = e
		}
	}
	if l.name == "" {
		return errors.New("say which experiment first: overload, container or caddy")
	}
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	var err error
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case l.rounds < 1 || l.rounds > 100:
		return fmt.Errorf("-rounds is %d; allowed: 1 to 100", l.rounds)
	}
	if l.only, err = regexp.Compile(strings.ReplaceAll(cmp.Or(selections()[*only], *only), ",", "|")); err != nil {
		return err
	}
	r, err := open(*out)
	if err != nil {
		return err
	}
	if *render {
		return r.write(*out)
	}
	groups := l.chosen()
	if len(groups) == 0 {
		return fmt.Errorf("-only %q matches no cell", *only)
	}
	defer l.close()
	if err := l.prepare(); err != nil {
		return err
	}
	if l.before != "" {
		*out = ""
	}
	r.about(l)
	return l.measure(groups, r, *out)
}

// chosen are the groups that have a cell which is asked for.
func (l *lab) chosen() (some []group) {
	for _, g := range l.groups() {
		if l.before != "" {
			g.ways = []way{g.ways[0], {name: g.ways[0].name + before, binary: l.before}}
		}
		if g.work.service != nil && g.work.service.fastcgi && phpFPM() == "" {
			continue // it is not installed
		}
		for _, load := range g.loads {
			if len(g.turn(l.only, load, 0, nil)) > 0 {
				some = append(some, g)
				break
			}
		}
	}
	return some
}

// cellName is how -only knows a cell.
func cellName(work string, load float64, kind, way string) string {
	return fmt.Sprintf("%s/%gx/%s/%s", work, load, kind, strings.ReplaceAll(way, " ", "-"))
}
