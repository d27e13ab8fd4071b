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
	item      = regexp.MustCompile(`(?m)^(\d+)\. +`)
	gap       = regexp.MustCompile(`\n\s*\n`)
	indent    = regexp.MustCompile(`\n\s*`)
	condition = regexp.MustCompile("^(No result |(?:`(\\w+)` = ((?:`[^`]+`(?:,? or |, )?)+) )?)→ ")
	bold      = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	goTo      = regexp.MustCompile(`(?i)(?:→|\b(?:go (?:on )?to|take the steps of)) (?:step \d+ of )?\[[^\]]*\]\(#([a-z0-9-]+)\)`)
	dropped   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	code      = regexp.MustCompile("`([^`]+)`")
)

// parse reads the runbook. It fails if a link leads nowhere, or if a branch has no query.
func parse(markdown string) (map[string]*section, error) {
	sections := map[string]*section{}
	for _, text := range strings.Split("\n"+markdown, "\n## ")[1:] {
		title, text, _ := strings.Cut(text, "\n")
		s := &section{title: title}
		sections[anchor(title)] = s
		for i, part := range strings.Split(text, "```") { // prose and, between the fences, code
			if i%2 == 1 {
				if text, found := strings.CutPrefix(part, "promql\n"); found {
					last := s.last()
					last.queries = append(last.queries, query{text: indent.ReplaceAllString(strings.TrimSpace(text), "\n")})
				}
				continue
			}
			for _, paragraph := range gap.Split(item.ReplaceAllString(part, "\n\n$0"), -1) {
				if err := s.read(strings.Trim(paragraph, "\n")); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, s := range sections {
		for _, st := range s.steps {
			jumps := []string{st.jump}
			for _, q := range st.queries {
				for _, b := range q.branches {
					jumps = append(jumps, b.jump)
				}
			}
			for _, to := range jumps {
				if to != "" && sections[to] == nil {
					return nil, fmt.Errorf("%s, step %s: no section #%s", s.title, st.number, to)
				}
			}
		}
	}
	return sections, nil
}

// last is the step that is read; a section without steps gets one.
func (s *section) last() *step {
	if len(s.steps) == 0 {
		s.steps = []step{{}}
	}
	return &s.steps[len(s.steps)-1]
}

// read reads a paragraph: the beginning of a step, a branch of the last query, a jump, or what only a person reads.
func (s *section) read(text string) error {
	if m := item.FindStringSubmatch(text); m != nil {
		s.steps = append(s.steps, step{number: m[1]})
		text = strings.TrimPrefix(text, m[0])
	}
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "- ")
	jump, at := "", goTo.FindStringSubmatchIndex(text)
	if len(at) > 0 {
		jump = text[at[2]:at[3]]
	}
	m := condition.FindStringSubmatch(text)
	switch {
	case m != nil:
		queries := s.last().queries
		if len(queries) == 0 {
			return fmt.Errorf("%s: a branch without a query: %q", s.title, text)
		}
		b := branch{result: m[1] != "No result ", label: m[2], jump: jump}
		for _, v := range code.FindAllStringSubmatch(m[3], -1) {
			b.values = append(b.values, v[1])
		}
		if m := bold.FindStringSubmatch(text); m != nil {
			b.name, b.jump = strings.ToLower(strings.Trim(m[1], " .:")), ""
		}
		q := &queries[len(queries)-1]
		q.branches = append(q.branches, b)
	case len(at) > 0 && at[0] == 0 && len(s.last().queries) == 0: // the paragraph is nothing but a jump
		s.last().jump = jump
	}
	return nil
}

// anchor returns the anchor that GitHub gives to a heading.
func anchor(title string) string {
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}
