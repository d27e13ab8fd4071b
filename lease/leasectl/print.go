// SPDX-License-Identifier: Apache-2.0

package main

// This file prints, and takes care that nothing in a letter can tell the terminal what to do.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stopbank/stopbank/lease/deadletter"
)

const (
	mostPayload = 4096 // bytes that show prints
	mostHeader  = 256
	mostCell    = 60 // runes of a column of list
)

// plain is a text for a terminal: as it is if it can be printed, else quoted as in Go.
func plain(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	return strconv.Quote(text)
}

// column is a plain text without what could pass for the space between two columns.
func column(text string) string {
	if strings.Contains(text, "  ") || strings.TrimSpace(text) != text {
		return strings.ReplaceAll(strconv.Quote(text), "  ", ` \x20`)
	}
	return plain(text)
}

// cell is a text that fits into a column.
func cell(text string) string {
	text = column(text)
	if runes := []rune(text); len(runes) > mostCell {
		return string(runes[:mostCell-1]) + "…"
	}
	return text
}

// shown is what is shown of bytes.
func shown(b []byte, most int) string {
	if b == nil {
		return "none"
	}
	if len(b) > most {
		return strconv.Quote(string(b[:most])) + fmt.Sprintf("… (%d bytes)", len(b))
	}
	return strconv.Quote(string(b))
}

func (o options) list(ctx context.Context, desk deadletter.Store, out *bufio.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if !o.json {
		fmt.Fprintln(table, "ID\tKEY\tGIVEN UP\tATTEMPTS\tBYTES\tFAILURE\tPARKED")
	}
	n := 0
	for letter, err := range desk.List(ctx, o.filter) {
		if err != nil {
			return err
		}
		n++
		if o.json {
			if err := printJSON(out, letter, false); err != nil {
				return err
			}
			continue
		}
		key, attempts, parked := cmp.Or(cell(letter.Record.Domain), `""`), "?", ""
		if letter.Attempts > 0 {
			attempts = strconv.Itoa(letter.Attempts)
		}
		if letter.Parked {
			parked = "parked: " + letter.Note
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", column(letter.ID().String()), key,
			letter.At.UTC().Format(time.RFC3339), attempts, letter.Size, cell(letter.Failure), cell(parked))
		if n%1000 == 0 { // columns are as wide as a thousand letters need
			if err := table.Flush(); err != nil {
				return err
			}
		}
	}
	return table.Flush()
}

func (o options) show(out *bufio.Writer, l deadletter.Letter) error {
	if o.json {
		return printJSON(out, l, true)
	}
	line := func(name, value string) { fmt.Fprintf(out, "%-10s %s\n", name, value) }
	line("id", plain(l.ID().String()))
	line("key", plain(l.Record.Domain))
	if !l.Record.Time.IsZero() {
		line("written", l.Record.Time.UTC().Format(time.RFC3339Nano))
	}
	line("given up", l.At.UTC().Format(time.RFC3339Nano))
	if l.Attempts > 0 {
		line("attempts", strconv.Itoa(l.Attempts))
	}
	line("failure", plain(l.Failure))
	if l.Parked {
		line("parked", plain(l.Note))
	}
	if l.Route != "" {
		line("goes to", plain(l.Route))
	}
	for _, h := range l.Record.Headers {
		line("header", plain(h.Key)+": "+shown(h.Value, mostHeader))
	}
	line("payload", shown(l.Record.Payload, mostPayload))
	return nil
}

// letterJSON is a letter in JSON. Bytes that are text come as text, others in base64.
type letterJSON struct {
	ID            string       `json:"id"`
	Partition     string       `json:"partition"`
	Offset        int64        `json:"offset"`
	Key           string       `json:"key"`
	KeyBase64     []byte       `json:"key_base64,omitempty"` // if key is not the whole truth
	Written       string       `json:"written,omitempty"`    // in any year, of which a time.Time in JSON has four digits
	GivenUp       string       `json:"given_up"`
	Attempts      int          `json:"attempts,omitempty"`
	Failure       string       `json:"failure"`
	Route         string       `json:"route,omitempty"`
	Parked        bool         `json:"parked"`
	Note          string       `json:"note,omitempty"`
	Size          int          `json:"size"`
	Headers       []headerJSON `json:"headers,omitempty"`
	Payload       *string      `json:"payload,omitempty"`
	PayloadBase64 []byte       `json:"payload_base64,omitempty"`
}

type headerJSON struct {
	Key         string  `json:"key"`
	KeyBase64   []byte  `json:"key_base64,omitempty"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
}

// either is b as text, or as it is.
func either(b []byte) (text *string, raw []byte) {
	if b == nil || !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}

// binary is a text that is none, as it is; nil if it is one.
func binary(text string) []byte {
	if utf8.ValidString(text) {
		return nil
	}
	return []byte(text)
}

func printJSON(out *bufio.Writer, l deadletter.Letter, whole bool) error {
	j := letterJSON{
		ID: l.ID().String(), Partition: l.Partition, Offset: l.Record.Offset, Key: l.Record.Domain,
		KeyBase64: binary(l.Record.Domain), GivenUp: l.At.UTC().Format(time.RFC3339Nano),
		Attempts: l.Attempts,
		Failure:  l.Failure, Route: l.Route, Parked: l.Parked, Note: l.Note, Size: l.Size,
	}
	if !l.Record.Time.IsZero() {
		j.Written = l.Record.Time.UTC().Format(time.RFC3339Nano)
	}
	if whole {
		for _, h := range l.Record.Headers {
			text, raw := either(h.Value)
			j.Headers = append(j.Headers, headerJSON{h.Key, binary(h.Key), text, raw})
		}
		j.Payload, j.PayloadBase64 = either(l.Record.Payload)
	}
	return printLine(out, j)
}

// printLine prints v as a line of JSON in which what a terminal would obey is escaped: the encoder leaves some of it.
func printLine(out *bufio.Writer, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	var safe strings.Builder
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		switch {
		case unicode.IsPrint(r):
			safe.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&safe, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&safe, `\u%04x`, r)
		}
	}
	_, err := fmt.Fprintln(out, safe.String())
	return err
}

// done says what was done.
func (o options) done(out *bufio.Writer, what string, err error) error {
	switch {
	case err != nil:
		return err
	case o.json:
		return printLine(out, map[string]string{"id": o.id, "done": what})
	}
	_, err = fmt.Fprintln(out, plain(o.id), what)
	return err
}

func (o options) report(out *bufio.Writer, r deadletter.Report) error {
	if o.json {
		return printLine(out, map[string]int{"replayed": r.Replayed, "parked": r.Parked, "gone": r.Gone, "failed": r.Failed,
			"behind": r.Behind})
	}
	_, err := fmt.Fprintf(out, "%d replayed, %d parked, %d gone meanwhile, %d failed, %d behind those in their keys\n", r.Replayed,
		r.Parked, r.Gone, r.Failed, r.Behind)
	return err
}
