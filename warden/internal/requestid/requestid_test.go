// SPDX-License-Identifier: Apache-2.0

// Which texts are ids, held against a plain reader, and where an id comes from.

package requestid

import (
	"context"
	"regexp"
	"strings"
	"testing"
)

func plainValid(s string) bool {
	return regexp.MustCompile(`\A[\x21\x23-\x5b\x5d-\x7e]{1,128}\z`).MatchString(s)
}

func plainTrace(s string) string {
	m := regexp.MustCompile(
		`\A([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*|)\z`,
	).FindStringSubmatch(strings.ReplaceAll(s, "\n", "?"))
	if len(m) < 5 || m[1] == "ff" || m[1] == "00" && m[4] != "" || m[2] == strings.Repeat("0", 32) ||
		m[3] == strings.Repeat("0", 16) {
		return ""
	}
	return m[2]
}

const (
	trace   = "0af7651916cd43dd8448eb211c80319c"
	whole   = "00-" + trace + "-b7ad6b7169203331-01"
	nothing = "00-00000000000000000000000000000000-b7ad6b7169203331-01"
)

func FuzzValid(f *testing.F) {
	for _, s := range []string{
		"", "a", "a b", "a\n", `a"`, `a\`, "\x7f", "ä", "7f9c-1/2+3=4", strings.Repeat("x", 128), strings.Repeat("x", 129),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := Valid(s), plainValid(s); got != want {
			t.Fatalf("%q: %v, want %v", s, got, want)
		}
	})
}

func FuzzTraceparent(f *testing.F) {
	for _, s := range []string{
		"", whole, nothing, whole + "-", whole + "x", "01" + whole[2:] + "-more", "01" + whole[2:] + "more", "ff" + whole[2:],
		"0g" + whole[2:],
		strings.ToUpper(whole), "00-" + trace + "-0000000000000000-01", whole[:54], whole[:54] +
			"g", strings.ReplaceAll(whole, "-", "_"), whole + "\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := traceID(s), plainTrace(s); got != want {
			t.Fatalf("%q: %q, want %q", s, got, want)
		}
	})
}

func TestOf(t *testing.T) {
	one := func(s ...string) []string { return s }
	for _, c := range []struct {
		trace []string
		given [][]string
		want  string // "": a new one
	}{
		{nil, nil, ""},
		{one(whole), nil, trace},
		{one(whole), [][]string{one("given")}, "given"},
		{one(whole), [][]string{one("own"), one("given")}, "own"},
		{one(whole), [][]string{one(""), one("given")}, "given"},
		{one(whole), [][]string{one("o w n"), one("given")}, "given"},
		{one(whole), [][]string{one("given", "given")}, trace},
		{one(whole, whole), [][]string{one("line\nbreak")}, ""},
		{one(nothing), nil, ""},
	} {
		got := Of(c.trace, c.given...)
		if c.want == "" && !regexp.MustCompile(`\A[0-9a-f]{16}\z`).MatchString(got) || c.want != "" && got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.trace, c.given, got, c.want)
		}
	}
	if a, b := Of(nil), Of(nil); a == b {
		t.Errorf("twice %q", a)
	}
	given := []string{"given"}
	if n := testing.AllocsPerRun(100, func() { Of(nil, nil, given) }); n > 1 {
		t.Errorf("%v allocations, want the id", n)
	}
}

func TestContext(t *testing.T) {
	ctx := context.Background()
	if got := From(ctx); got != "" {
		t.Errorf("%q of no request", got)
	}
	type other struct{}
	outer := With(context.WithValue(ctx, other{}, 7), "outer")
	inner := With(outer, "inner")
	if From(outer) != "outer" || From(inner) != "inner" || inner.Value(other{}) != 7 {
		t.Errorf("%q, %q, %v", From(outer), From(inner), inner.Value(other{}))
	}
	if n := testing.AllocsPerRun(100, func() { From(inner) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	cancelable, cancel := context.WithCancel(ctx)
	child, end := context.WithCancel(With(cancelable, "x"))
	defer end()
	if cancel(); child.Err() == nil {
		<-child.Done()
	}
}
