// SPDX-License-Identifier: Apache-2.0

// The runbook as a graph: sections of steps, steps of queries, queries with branches.
package main

import (
	"fmt"
	"regexp"
	"strings"
)

// A section is one heading of the second level, found by its anchor.
type section struct {
	title string
	steps []step
}

// A step is a numbered item: queries one after the other, or a jump.
type step struct {
	number  string
	queries []query
	jump    string // anchor that a step without a query sends on to; "": none
}

// A query and what to do with its answer.
type query struct {
	text     string
	branches []branch
}

// A branch is what an arrow leads to. It is taken by a query that has a result, or none ("No result →"), and if label is set, by a
// series with one of these values ("`reason` = `closed` →").
type branch struct {
	result bool
	label  string
	values []string
	name   string // of the fault; "": the branch does not name one
	jump   string // anchor; "": the branch does not send on
}

var (
	heading   = regexp.MustCompile(`^## (.+)$`)
	item      = regexp.MustCompile(`^(\d+)\. +(.*)$`)
	condition = regexp.MustCompile("^(No result |(?:`(\\w+)` = ((?:`[^`]+`(?:,? or |, )?)+) )?)→ ")
	bold      = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	goTo      = regexp.MustCompile(`(?i)(?:→|\b(?:go (?:on )?to|take the steps of)) (?:step \d+ of )?\[[^\]]*\]\(#([a-z0-9-]+)\)`)
	code      = regexp.MustCompile("`([^`]+)`")
)

// parse reads the runbook. It fails if a link leads nowhere, if a branch neither names nor sends on nor says what to do before the
// next step, or if a branch has no query.
func parse(markdown string) (map[string]*section, error) {
	p := parser{sections: map[string]*section{}}
	for line := range strings.Lines(markdown + "\n\n") {
		if err := p.line(strings.TrimRight(line, "\n")); err != nil {
			return nil, err
		}
	}
	for _, s := range p.sections {
		for _, st := range s.steps {
			for _, to := range st.jumps() {
				if p.sections[to] == nil {
					return nil, fmt.Errorf("%s, step %s: no section #%s", s.title, st.number, to)
				}
			}
		}
	}
	return p.sections, nil
}

// jumps are all anchors that the step may send on to.
func (st *step) jumps() (all []string) {
	if st.jump != "" {
		all = append(all, st.jump)
	}
	for _, q := range st.queries {
		for _, b := range q.branches {
			if b.jump != "" {
				all = append(all, b.jump)
			}
		}
	}
	return all
}

type parser struct {
	sections  map[string]*section
	at        *section
	paragraph []string
	fence     string // info string of the code block that is open, with a mark; "": none
	block     []string
}

func (p *parser) line(line string) error {
	text := strings.TrimSpace(line)
	switch {
	case p.fence != "" && text == "```":
		if p.fence == "```promql" && p.at != nil {
			p.add(query{text: strings.Join(p.block, "\n")})
		}
		p.fence, p.block = "", nil
		return nil
	case p.fence != "":
		p.block = append(p.block, text)
		return nil
	case strings.HasPrefix(text, "```"):
		p.fence = text
		return p.end()
	}
	title, number := heading.FindStringSubmatch(line), item.FindStringSubmatch(line)
	if title != nil || number != nil || text == "" {
		if err := p.end(); err != nil {
			return err
		}
	}
	switch {
	case title != nil:
		p.at = &section{title: title[1]}
		p.sections[anchor(title[1])] = p.at
	case number != nil && p.at != nil:
		p.at.steps = append(p.at.steps, step{number: number[1]})
		p.paragraph = []string{number[2]}
	case text != "":
		p.paragraph = append(p.paragraph, text)
	}
	return nil
}

// add adds a query to the last step; a section without steps gets one.
func (p *parser) add(q query) {
	if len(p.at.steps) == 0 {
		p.at.steps = []step{{}}
	}
	last := &p.at.steps[len(p.at.steps)-1]
	last.queries = append(last.queries, q)
}

// end reads a whole paragraph.
func (p *parser) end() error {
	text := strings.Join(p.paragraph, " ")
	p.paragraph = nil
	if text == "" || p.at == nil {
		return nil
	}
	jump := ""
	if m := goTo.FindStringSubmatch(text); m != nil {
		jump = m[1]
	}
	text = strings.TrimPrefix(text, "- ")
	if m := condition.FindStringSubmatch(text); m != nil {
		b := branch{result: m[1] != "No result ", label: m[2], jump: jump}
		for _, v := range code.FindAllStringSubmatch(m[3], -1) {
			b.values = append(b.values, v[1])
		}
		if m := bold.FindStringSubmatch(text); m != nil {
			b.name, b.jump = strings.ToLower(strings.Trim(m[1], " .:")), ""
		}
		if len(p.at.steps) == 0 || len(p.at.steps[len(p.at.steps)-1].queries) == 0 {
			return fmt.Errorf("%s: a branch without a query: %q", p.at.title, text)
		}
		queries := p.at.steps[len(p.at.steps)-1].queries
		q := &queries[len(queries)-1]
		q.branches = append(q.branches, b)
		return nil
	}
	if first := goTo.FindStringIndex(text); len(first) > 0 && first[0] == 0 { // the paragraph is nothing but a jump
		if len(p.at.steps) == 0 {
			p.at.steps = []step{{}}
		}
		if last := &p.at.steps[len(p.at.steps)-1]; len(last.queries) == 0 {
			last.jump = jump
		}
	}
	return nil
}

// anchor returns the anchor that GitHub gives to a heading.
func anchor(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}
