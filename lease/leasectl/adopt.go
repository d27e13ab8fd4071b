// SPDX-License-Identifier: Apache-2.0

package main

// This file has positions and ledgers that are of another log take the one that is there now for their own.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/stopbank/stopbank/lease/internal/adopt"
)

// What becomes of a binding.
const (
	toAdopt = "to adopt"
	same    = "the same" // nothing has to be done
	barred  = "barred"
)

func fate(b adopt.Binding) string {
	switch {
	case b.Of == b.Is:
		return same
	case b.Bars != nil:
		return barred
	}
	return toAdopt
}

// adopt shows what it found, asks, and has the rest adopted.
func (o options) adopt(ctx context.Context, all []adopt.Binding, in *bufio.Reader, out *bufio.Writer) error {
	if o.filter.Partition != "" {
		all = slices.DeleteFunc(all, func(b adopt.Binding) bool { return b.Name != o.filter.Partition })
	}
	count, err := o.found(out, all)
	if err != nil {
		return err
	}
	if count[toAdopt] > 0 {
		err = o.ask(in, out, fmt.Sprintf("Take the logs that are there now for the former ones, in %d places? "+
			"They must have the same records at the same offsets.", count[toAdopt]))
	}
	adopted := 0
	for _, b := range all {
		if err != nil {
			break
		}
		if fate(b) == toAdopt {
			if err = b.Adopt(ctx); err == nil {
				adopted++
			}
		}
	}
	if err == nil && count[barred] > 0 {
		err = errors.New("what is barred is not the log that it was: begin a new position and ledger, or let a mirror catch up")
	}
	return errors.Join(o.adopted(out, adopted, count), err)
}

// bindingJSON is a binding in JSON.
type bindingJSON struct {
	Partition string `json:"partition"`
	Of        string `json:"of"`
	Now       string `json:"now,omitempty"`
	Fate      string `json:"fate"`
	Bars      string `json:"bars,omitempty"`
}

// found prints what was found, and counts it by fate.
func (o options) found(out *bufio.Writer, all []adopt.Binding) (map[string]int, error) {
	count := map[string]int{}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if !o.json {
		fmt.Fprintln(table, "PARTITION\tIS OF\tNOW THERE\tFATE\tBECAUSE")
	}
	for _, b := range all {
		count[fate(b)]++
		bars := ""
		if b.Bars != nil {
			bars = b.Bars.Error()
		}
		if o.json {
			if err := printLine(out, bindingJSON{b.Name, b.Of, b.Is, fate(b), bars}); err != nil {
				return nil, err
			}
			continue
		}
		now := b.Is
		if now == "" {
			now = "whatever is read next"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", plain(b.Name), plain(b.Of), plain(now), fate(b), plain(bars))
	}
	return count, table.Flush()
}

func (o options) adopted(out *bufio.Writer, adopted int, count map[string]int) error {
	if o.json {
		return printLine(out, map[string]int{"adopted": adopted, "same": count[same], "barred": count[barred]})
	}
	_, err := fmt.Fprintf(out, "%d adopted, %d the same, %d barred\n", adopted, count[same], count[barred])
	return err
}
